"""The axes of a sweep: settings with several values, whose combinations are its points.

A run states its values. One that does not need the value of an axis belongs to all of that axis's points: the run of an
objective without a parameter is part of the grid of each of the parameter's values, and counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pandas as pd

from analysis import run_schema as schema
from analysis.blocks import point_values

VARIANT = "variant"
"""The axis of the objectives' variants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One setting with several values."""

    name: str
    """As labels have it, such as ``tau`` or ``lr``."""
    stage: str
    """The stage whose setting it is; empty for one of the objectives."""
    values: tuple[str, ...]
    """As labels have them, in the order of the sweep file."""

    @classmethod
    def read(cls, item: Any) -> Axis:
        """Of an entry of the parent run's tag.

        Raises:
            KeyError, TypeError: it is none.
        """
        return cls(name=str(item["name"]), stage=str(item["stage"]), values=tuple(map(str, item["values"])))

    @property
    def numbers(self) -> tuple[float, ...] | None:
        """The values as numbers, or None where one is none."""
        try:
            return tuple(map(float, self.values))
        except ValueError:
            return None


def axes_of(axes: Sequence[Axis], stages: Sequence[str]) -> list[Axis]:
    """The axes that touch a training.

    Args:
        axes: the sweep's axes.
        stages: the training's stages, from the first up to its own.
    """
    return [axis for axis in axes if axis.stage in ("", *stages)]


def points_of(axes: Sequence[Axis]) -> tuple[str, ...]:
    """Every combination of the values, that of the last axis changing fastest; one without axes."""
    names = [axis.name for axis in axes]
    return tuple(
        " ".join(f"{name} {value}" for name, value in zip(names, values, strict=True))
        for values in product(*(axis.values for axis in axes))
    )


def is_at(runs: pd.DataFrame, point: str) -> pd.Series[bool]:
    """Which runs belong to a point: those whose values are its values, or do not matter to them."""
    wanted = point_values(point)
    found = [
        all(value in (schema.ANY_VALUE, wanted.get(name)) for name, value in point_values(text).items())
        for text in runs["point"]
    ]
    return pd.Series(found, index=runs.index, dtype=bool)


def misplaced(point: str, axes: Sequence[Axis]) -> bool:
    """Whether what a run states is not a place among the axes that touch it."""
    values = point_values(point)
    known = {axis.name: (schema.ANY_VALUE, *axis.values) for axis in axes}
    return values.keys() != known.keys() or any(value not in known[name] for name, value in values.items())


def first_points(axes: Sequence[Axis], stages: Sequence[str]) -> dict[str, str]:
    """For each stage the point of the first values, which are those of the sweep's own settings."""
    return {stage: points_of(axes_of(axes, stages[: number + 1]))[0] for number, stage in enumerate(stages)}
