"""What goal-sweep writes about a cell to MLflow: its tags and parameters."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from runners import run_schema as names
from sweeps import Cell, CellStage, to_mapping

_NOT_OF_THE_CELL = frozenset(
    {"format", "name", "root", "annotations", "num_train", "num_val", "num_test", "data_seed", "weights"}
)
"""Labels, places, and what the data's fingerprint says already: equal cells may differ in them, parameters may not."""
_MAX_TEXT = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedSweep:
    """A sweep, as its MLflow experiment and parent run describe it."""

    name: str
    """Also the experiment's name."""
    seeds: tuple[int, ...]
    objectives: tuple[str, ...]
    """``pair/triplet``, in the table's order."""
    stages: tuple[str, ...]
    data_fingerprint: str
    git_commit: str = ""
    """Commit of the goal-sweep checkout that launches; attempts carry their own."""

    def tags(self) -> dict[str, str]:
        """The parent run's tags."""
        return {
            names.ROLE: names.ROLE_SWEEP,
            names.SWEEP: self.name,
            names.SEEDS: json.dumps(list(self.seeds)),
            names.OBJECTIVES: json.dumps(list(self.objectives)),
            names.STAGES: json.dumps(list(self.stages)),
        }


def cell_tags(cell: Cell, stage: CellStage, sweep: TrackedSweep) -> dict[str, str]:
    """Tags of a child run, all but its status."""
    return {
        names.ROLE: names.ROLE_CELL,
        names.CELL: cell.id,
        names.STAGE: stage.name,
        names.STAGE_KEY: stage.key,
        names.PAIR: cell.objective.pair,
        names.TRIPLET: cell.objective.triplet,
        names.SEED: str(cell.seed),
        names.BACKBONE: cell.model.backbone.name,
        names.FRAMEWORK: cell.model.framework,
        names.DATASET: cell.data.name,
        names.VARIANT: cell.objective.variant,
        names.GIT_COMMIT: sweep.git_commit,
        names.DATA_FINGERPRINT: sweep.data_fingerprint,
    }


def cell_params(cell: Cell) -> dict[str, str]:
    """Parameters of a child run: what the cell's id is made of, so that they never change. Keys are dotted paths."""
    settings = {
        "data": to_mapping(cell.data),
        "model": to_mapping(cell.model),
        "objective": cell.objective.resolved(),
        "seed": cell.seed,
    }
    return dict(_flat(settings, ""))


def _flat(settings: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in settings.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            # A backbone's name is its identity, a dataset's is a label.
            if "backbone" in path:
                yield path, str(value["name"])
                continue
            yield from _flat(value, f"{path}.")
        elif key not in _NOT_OF_THE_CELL:
            yield path, _text(value)


def _text(value: Any) -> str:
    """Equal settings as equal text: `1` and `1.0` are one number."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)[:_MAX_TEXT]
