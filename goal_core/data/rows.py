"""The rows that importers give of a dataset, and the importers of plugins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from goal_sweep.goal_core.basics.registry import Registry


class Row(NamedTuple):
    """An image with some of its captions."""

    image: str
    """Its file, relative to the folder of the dataset, with forward slashes; in a shard, the shard."""
    captions: Sequence[str]
    split: str = ""
    """`train`, `val` or `test`; empty where none is given."""
    span: tuple[int, int] | None = None
    """Where it begins in a shard, and its bytes."""
    key: str = ""
    """Rows of the same key are one image; empty where the file tells."""


importers: Registry[Callable[[Path], Iterator[Row]]] = Registry("importer")
"""Of plugins: functions from `data.root` to the rows of what lies there."""
