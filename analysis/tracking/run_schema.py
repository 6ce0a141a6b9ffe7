"""The names that tracking must carry for results to be read, and the words and order of the tables.

The writer of these names is the sweep's driver. They are stated again here on purpose: this package must read a
tracking store on a machine that has nothing else of the project, and a test holds the two lists equal.
"""

from __future__ import annotations

from collections.abc import Iterable

PAIRS: tuple[str, ...] = ("con", "lin", "sig", "lin-ms", "sig-ms")
"""Pair weights: the rows of a block, in order."""
TRIPLETS: tuple[str, ...] = ("con", "nca", "cir")
"""Triplet weights: the columns of a block, in order."""
OBJECTIVES: tuple[tuple[str, str], ...] = tuple((pair, triplet) for pair in PAIRS for triplet in TRIPLETS)
"""All ``(pair, triplet)`` combinations, row by row."""
BASELINE: tuple[str, str] = ("con", "con")
"""The objective that the others are compared with: the gradient of the hardest-negative triplet loss."""


def in_order(names: Iterable[str], known: tuple[str, ...]) -> tuple[str, ...]:
    """``names`` without repeats: the ``known`` ones in their order, then any others (added by a user) by name."""
    given = set(names)
    return (*(name for name in known if name in given), *sorted(given - set(known)))


TAG_ROLE = "goal.role"
ROLE_SWEEP = "sweep"
ROLE_CELL = "cell"
TAG_PARENT = "mlflow.parentRunId"

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
"""``pair/triplet`` in one word."""
TAG_OBJECTIVE_KEY = "goal.objective_key"
TAG_SETTINGS_KEY = "goal.settings_key"
TAG_STATUS = "goal.status"
TAG_REASON = "goal.reason"
TAG_GIT_COMMIT = "goal.git_commit"
TAG_DATA_FINGERPRINT = "goal.data_fingerprint"
REQUIRED_CELL_TAGS: tuple[str, ...] = (
    TAG_CELL,
    TAG_STAGE,
    TAG_STAGE_KEY,
    TAG_PAIR,
    TAG_TRIPLET,
    TAG_SEED,
    TAG_BACKBONE,
    TAG_FRAMEWORK,
    TAG_DATASET,
    TAG_VARIANT,
    TAG_STATUS,
    TAG_DATA_FINGERPRINT,
)
"""Tags without which a run has no place in a table."""

TAG_SWEEP = "goal.sweep"
TAG_SEEDS = "goal.seeds"
TAG_OBJECTIVES = "goal.objectives"
TAG_STAGES = "goal.stages"
TAG_OBJECTIVE_KEYS = "goal.objective_keys"
TAG_SETTINGS_KEYS = "goal.settings_keys"
SWEEP_TAGS: tuple[str, ...] = (TAG_SWEEP, TAG_SEEDS, TAG_OBJECTIVES, TAG_STAGES, TAG_OBJECTIVE_KEYS, TAG_SETTINGS_KEYS)
"""Tags of a sweep's parent run; all but the name are JSON lists of what was asked for."""

TAG_TRIPLETS = "goal.triplets"
"""On runs that have a triplet record."""
TRIPLETS_ARTIFACT = "training/triplets.npz"
"""The triplet record among a run's artifacts."""

STATUS_WAITING = "waiting"
STATUS_RUNNING = "running"
STATUS_DONE = "done"
STATUS_FAILED = "failed"
STATUSES: tuple[str, ...] = (STATUS_WAITING, STATUS_RUNNING, STATUS_DONE, STATUS_FAILED)

DIRECTIONS: tuple[str, ...] = ("i2t", "t2i")
METRICS: tuple[str, ...] = ("R@1", "R@5", "R@10")
RSUM: tuple[str, str] = ("both", "rsum")
"""The ``(direction, metric)`` of the sum of all six recalls."""
COLUMNS: tuple[tuple[str, str], ...] = (*((d, m) for m in METRICS for d in DIRECTIONS), RSUM)
"""Every ``(direction, metric)`` that a report holds."""


def metric_key(direction: str, metric: str, split: str = "test") -> str:
    """The tracking name of a metric: ``("i2t", "R@1")`` is ``test/i2t_r1``, and ``("both", "rsum")`` ``test/rsum``."""
    return f"{split}/rsum" if (direction, metric) == RSUM else f"{split}/{direction}_r{metric.removeprefix('R@')}"


TEST_METRICS: tuple[str, ...] = tuple(metric_key(*column) for column in COLUMNS)
"""The metrics a finished run must have."""
