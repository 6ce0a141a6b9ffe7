"""The vocabulary of results: the columns and the header of a sweep's results table.

The store keeps one such table for each sweep, as a Parquet file with a row for each training.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from goal_sweep.goal_core.basics.errors import ConfigError, GoalError
from goal_sweep.sweeps.axes import Axis, axis_names
from goal_sweep.sweeps.identity import from_mapping, to_mapping
from goal_sweep.sweeps.tuning import Dimension, Study, TuneConfig, dimensions_of

BASELINE: Final = ("con", "con")
"""The objective that the others are compared with: the gradient of the hardest-negative triplet loss."""
DEFAULT: Final = "default"
TUNED: Final = "tuned"
"""The grids of a sweep that tunes: its own settings, and those chosen for each objective."""

LIMITS: Final = ("max_captions", "max_words", "max_val_images")  # of the data, by whose fingerprint they count
SETTING, EPOCHS = "setting/", "epochs/"
"""Prefixes of columns: a setting that decides the result, by dotted path; and a metric by epoch, as a list."""
RESULTS_FILE: Final = "results.parquet"
"""The table's file in the store, and its artifact of the sweep's MLflow run."""
HEADER_KEY: Final = b"goal-sweep"
"""The key of the header, as JSON, in the metadata of the Parquet schema."""

COLUMNS: Final[Mapping[str, tuple[str, str]]] = {
    "training": ("string", "stage key: identifies the training"),
    "name": ("string", "the training's name for people"),
    "cell": ("string", "cell id: identifies the model"),
    "stage": ("string", "name of the stage"),
    "dataset": ("string", "name of the dataset"),
    "framework": ("string", "name of the framework"),
    "backbone": ("string", "name of the image backbone"),
    "pair": ("string", "pair weight"),
    "triplet": ("string", "triplet weight"),
    "variant": ("string", "variant of the objective"),
    "seed": ("int64", "the cell's seed"),
    "configuration": ("string", "values of the axes, such as `tau 5 lr *`, * where it needs none; empty without axes"),
    "grid": ("string", "of a sweep that tunes: default, tuned, or both with a comma; else empty"),
    "role": ("string", "report, or candidate for a training of a search, which has no test numbers"),
    "candidate": ("int64", "number of the candidate; null for a training that reports"),
    "data_fingerprint": ("string", "digest of the data"),
    "status": ("string", "waiting, running, done or failed"),
    "reason": ("string", "why it failed, was interrupted or must be repeated; else empty"),
    "attempts": ("int64", "attempts made"),
    "best_epoch": ("int64", "the selected epoch; null until it is done"),
    "seconds": ("double", "seconds of its steps, with its share of what its unit did for all; null until it is done"),
    "step_ms": ("double", "mean milliseconds of a step"),
    "val_s": ("double", "seconds of all passes over the val split"),
    "started": ("double", "start of the first attempt, in seconds since 1970; null before it"),
    "ended": ("double", "end of the training, or of its last attempt; null before it"),
    "host": ("string", "machine of the last attempt"),
    "device": ("string", "processor of the last attempt"),
    "git_commit": ("string", "commit of the source tree"),
    "git_diff": ("string", "first 12 hex digits of the digest of uncommitted changes; empty without any"),
    "below_warmup": ("string", "both numbers, if it ended clearly below its own warm-up; else empty"),
    "weak_objective": ("string", "in how many epochs its objective was weak beside the framework's own loss"),
    "checkpoint": ("string", "path of its weights in the store; empty without"),
    "log": ("string", "path of its log in the store; empty without"),
    "ranks": ("binary", "ranks of the right answers of all test queries, as an .npz; null until it is tested"),
}
"""Arrow type and meaning of every fixed column. Beside them: ``setting/KEY`` (text, null where its framework or
objective has no such setting), ``val/METRIC`` of the selected epoch and ``test/METRIC`` of the same weights (double),
``epochs/epoch``, ``epochs/time`` and ``epochs/METRIC`` (lists of double, one entry for each recorded epoch)."""


class ResultsError(GoalError):
    """What a report needs is missing or damaged. The message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
    """What determines the trainings of a sweep; enough to list them again without the data."""

    config: Mapping[str, Any]
    """The sweep, without the places of its store and its tracking."""
    data_fingerprint: str
    weights: Mapping[str, str]
    """Content id of each backbone's initial weights."""


@dataclass(frozen=True, kw_only=True)
class Header:
    """What a results table says of its sweep as a whole."""

    sweep: str
    seeds: tuple[int, ...]
    objectives: tuple[tuple[str, str], ...]
    stages: tuple[str, ...]
    configurations: Mapping[str, tuple[str, ...]]
    """By stage, every combination of the values of the axes that touch it, such as ``tau 5 lr 0.001``; that of the
    sweep's own settings comes first. Without axes a single empty text."""
    requested: Requested
    axes: tuple[Axis, ...] = ()
    tune: TuneConfig | None = None
    studies: tuple[Study, ...] = ()
    """What was tried and chosen; empty until the search is over."""
    written: float = 0.0
    """When the table was written, in seconds since 1970."""
    version: str = ""

    def as_json(self) -> bytes:
        """The header as the table's metadata have it."""
        return json.dumps(to_mapping(self)).encode()

    @classmethod
    def parse(cls, content: bytes) -> Header:
        """Read what `as_json` wrote; a `ConfigError` says that it is damaged, or of another goal-sweep."""
        try:
            found = json.loads(content)
        except ValueError as error:
            raise ConfigError("its header is not JSON") from error
        return from_mapping(cls, found)

    @property
    def grids(self) -> tuple[str, ...]:
        """The grids of a sweep that tunes; none for others."""
        return () if self.tune is None else (DEFAULT, TUNED)

    @cached_property
    def dimensions(self) -> dict[str, Dimension]:
        """What was searched, by its name in labels."""
        return {} if self.tune is None else dimensions_of(self.tune)

    def until(self, stage: str) -> tuple[str, ...]:
        """The stages up to and including one."""
        return self.stages[: self.stages.index(stage) + 1]

    def axes_of(self, stage: str) -> dict[str, Axis]:
        """The axes that touch the trainings of a stage, by their names in labels."""
        named = zip(axis_names(self.axes), self.axes, strict=True)
        return {name: axis for name, axis in named if axis.stage in ("", *self.until(stage))}
