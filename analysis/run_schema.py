"""The names that results have in tracking, and the order and labels of the tables.

The sweep's driver writes these names. They are repeated here on purpose, because this package must be able to read a
tracking store on a machine without the other packages. A test keeps both lists equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

PAIRS: tuple[str, ...] = ("con", "lin", "sig", "lin-ms", "sig-ms")
"""Pair weights: the rows of a block, in order."""
TRIPLETS: tuple[str, ...] = ("con", "nca", "cir")
"""Triplet weights: the columns of a block, in order."""
OBJECTIVES: tuple[tuple[str, str], ...] = tuple((pair, triplet) for pair in PAIRS for triplet in TRIPLETS)
"""All ``(pair, triplet)`` combinations, row by row."""
BASELINE: tuple[str, str] = ("con", "con")
"""The objective that the others are compared with: the gradient of the hardest-negative triplet loss."""


def in_order(names: Iterable[str], known: tuple[str, ...]) -> tuple[str, ...]:
    """``names`` without duplicates: the ``known`` ones in their order, then any others (added by a user) by name."""
    given = set(names)
    return (*(name for name in known if name in given), *sorted(given - set(known)))


TAG_ROLE = "goal.role"
ROLE_SWEEP = "sweep"
ROLE_CELL = "cell"
ROLE_CANDIDATE = "candidate"
"""Of a training that was tried while tuning. It has no test number, and is in no table."""

TAG_CELL = "goal.cell"
TAG_STAGE = "goal.stage"
TAG_STAGE_KEY = "goal.stage_key"
TAG_PAIR = "goal.pair"
TAG_TRIPLET = "goal.triplet"
TAG_SEED = "goal.seed"
TAG_BACKBONE = "goal.backbone"
TAG_FRAMEWORK = "goal.framework"
TAG_DATASET = "goal.dataset"
TAG_VARIANT = "goal.variant"
TAG_OBJECTIVE = "goal.objective"
"""The objective as ``pair/triplet``."""
TAG_OBJECTIVE_KEY = "goal.objective_key"
TAG_SETTINGS_KEY = "goal.settings_key"
TAG_POINT = "goal.point"
"""For a run of a sweep with axes: its values, such as ``tau * lr 0.0002``; `ANY_VALUE` where it needs none."""
ANY_VALUE = "*"
TAG_CANDIDATE = "goal.candidate"
"""The number of a candidate in the trail of its objective, from 0."""
TAG_GRID = "goal.grid"
"""For a run of a tuned sweep: its grid, or both with a comma where the choice was the default; absent from others."""
GRID_DEFAULT, GRID_TUNED = "default", "tuned"
GRID_FORMER = "former"
"""In place of a grid: the run is of an earlier choice."""
GRIDS: tuple[str, ...] = (GRID_DEFAULT, GRID_TUNED)
"""The grids of a tuned sweep: the sweep's own settings, and those chosen for each objective."""
TAG_BUDGET = "goal.budget"
"""For a sweep that is tuned: the candidates per objective, as the parent run states them before any choice."""
TUNING_ARTIFACT = "tuning.json"
"""The trail and the choices of a tuned sweep among its parent run's artifacts."""
TAG_STATUS = "goal.status"
TAG_REASON = "goal.reason"
TAG_GIT_COMMIT = "goal.git_commit"
TAG_GIT_DIFF = "goal.git_diff"
"""First 12 hex digits of the SHA-256 of the uncommitted changes to the source tree; absent or empty without any."""
TAG_IMPORTED = "goal.imported"
"""The archive that a run's numbers were imported from; absent or empty if they were computed where they are stored."""
TAG_BELOW_WARMUP = "goal.below_warmup"
"""Both numbers of a training that ended clearly below its own warm-up; absent from others."""
TAG_WEAK = "goal.weak_objective"
"""In how many epochs a training's objective was weak beside its framework's own loss; absent from others."""
TAG_STACKED = "goal.stacked"
"""The share of a training's steps in which its heads trained in a stack; absent where they never did."""
TAG_DATA_FINGERPRINT = "goal.data_fingerprint"
REQUIRED_CELL_TAGS: tuple[str, ...] = (
    *(TAG_CELL, TAG_STAGE, TAG_STAGE_KEY, TAG_PAIR, TAG_TRIPLET, TAG_SEED),
    *(TAG_BACKBONE, TAG_FRAMEWORK, TAG_DATASET, TAG_VARIANT, TAG_STATUS, TAG_DATA_FINGERPRINT),
)
"""Tags that a run needs to appear in a table."""

TAG_SWEEP = "goal.sweep"
TAG_SEEDS = "goal.seeds"
TAG_OBJECTIVES = "goal.objectives"
TAG_STAGES = "goal.stages"
TAG_OBJECTIVE_KEYS = "goal.objective_keys"
TAG_SETTINGS_KEYS = "goal.settings_keys"
TAG_AXES = "goal.axes"
"""For a sweep with axes: in JSON, these, each with its name, its stage and its values, and the number of trainings."""
SWEEP_TAGS: tuple[str, ...] = (
    *(TAG_SWEEP, TAG_SEEDS, TAG_OBJECTIVES, TAG_STAGES, TAG_OBJECTIVE_KEYS, TAG_SETTINGS_KEYS),
    TAG_DATA_FINGERPRINT,
)
"""Tags of a sweep's parent run: its name, its data's fingerprint, and what it requests, as JSON lists."""

TAG_CHECKPOINT = "goal.checkpoint"
"""Path of the run's weights in the results folder."""
TAG_TRIPLETS = "goal.triplets"
"""Set on runs that have a triplet record."""
TRIPLETS_ARTIFACT = "training/triplets.npz"
"""The triplet record among a run's artifacts."""

STATUS_DONE = "done"
STATUSES: tuple[str, ...] = ("waiting", "running", STATUS_DONE, "failed")

TEST_PREFIX = "test/"
"""Metrics of the selected epoch's weights on the test split."""
SELECTED_PREFIX = "selected/val_"
"""Metrics of the same weights on the validation split; older runs lack them."""

DIRECTIONS: tuple[str, ...] = ("i2t", "t2i")
DIRECTION_TITLES: Mapping[str, str] = {"i2t": "Image → Text", "t2i": "Text → Image", "both": "Both directions"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One of the six recalls, or their sum."""

    key: str
    """``i2t_r1`` to ``t2i_r10`` or ``rsum``: its name from tracking to the tables."""
    direction: str
    """``i2t``, ``t2i`` or ``both``."""
    name: str
    """``R@1``, ``R@5``, ``R@10`` or ``rsum``, without the direction."""
    maximum: float
    """The largest value it can take; the smallest is 0."""

    @property
    def test(self) -> str:
        """Its name in tracking, measured on the test split."""
        return TEST_PREFIX + self.key

    @property
    def selected(self) -> str:
        """Its name in tracking, measured on the validation split with the same weights as `test`."""
        return SELECTED_PREFIX + self.key

    @property
    def label(self) -> str:
        """Its name in a narrow column: ``i2t R@1``, or ``rsum``."""
        return self.name if self.direction == "both" else f"{self.direction} {self.name}"

    @property
    def title(self) -> str:
        """Its name in words: ``Image → Text R@1``, or ``rsum``."""
        return self.name if self.direction == "both" else f"{DIRECTION_TITLES[self.direction]} {self.name}"


def _metrics() -> Iterable[Metric]:
    for k in (1, 5, 10):
        for direction in DIRECTIONS:
            yield Metric(key=f"{direction}_r{k}", direction=direction, name=f"R@{k}", maximum=100)
    yield Metric(key="rsum", direction="both", name="rsum", maximum=600)


METRICS: Mapping[str, Metric] = {metric.key: metric for metric in _metrics()}
"""Every metric in a report, by its key, in the order of the tables."""
RSUM = METRICS["rsum"]
MAIN_METRICS: tuple[Metric, ...] = (METRICS["i2t_r1"], METRICS["t2i_r1"], RSUM)
"""The metrics for which statistics are shown."""
TEST_METRICS: tuple[str, ...] = tuple(metric.test for metric in METRICS.values())
"""The metrics that a finished run must have, under their names in tracking."""

MEASURES: tuple[str, ...] = tuple(dict.fromkeys(metric.name for metric in METRICS.values()))
"""Each has a table and a heatmap in every block: ``R@1``, ``R@5``, ``R@10`` (both directions) and ``rsum``."""


def measure_slug(measure: str) -> str:
    """A measure's name in file names: ``R@1`` is ``r1``."""
    return measure.replace("@", "").lower()
