"""What goal-sweep writes about a cell to MLflow: its tags and parameters."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from goal_core.numerics import NUMERICS_VERSION
from runners.tracking import schema as names
from sweeps import Cell, CellStage, content_id, to_mapping

_NOT_OF_THE_CELL = frozenset(
    {
        *("format", "name", "root", "annotations", "num_train", "num_val", "num_test", "data_seed"),
        *("weights", "init_from"),
    }
)
"""Labels, places, and what the data's fingerprint says already: equal cells may differ in them, parameters may not."""
_NOT_OF_THE_STAGE = frozenset({"name", "checkpoint_every", "collapse_patience"})
"""Settings of a stage that are no part of its key, so that runs of one key may differ in them."""
_UNSAID = {"bn_mode": "frozen_eval", "vocabulary": "train_val", "select_on": "val"}
"""Settings added later, which at these values leave runs as they were before them."""
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
    weights: Mapping[str, str] = field(default_factory=dict)
    """Identity of each backbone's first weights, by the backbone's name."""
    objective_keys: tuple[str, ...] = ()
    """In the order of the objectives; empty when not known."""
    settings_keys: tuple[str, ...] = ()
    """Of every backbone and stage; empty when not known."""

    def tags(self) -> dict[str, str]:
        """The parent run's tags."""
        return {
            names.ROLE: names.ROLE_SWEEP,
            names.SWEEP: self.name,
            names.SEEDS: json.dumps(list(self.seeds)),
            names.OBJECTIVES: json.dumps(list(self.objectives)),
            names.STAGES: json.dumps(list(self.stages)),
            names.OBJECTIVE_KEYS: json.dumps(list(self.objective_keys)),
            names.SETTINGS_KEYS: json.dumps(list(self.settings_keys)),
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
        names.OBJECTIVE: cell.objective.name,
        names.OBJECTIVE_KEY: objective_key(cell),
        names.SETTINGS_KEY: settings_key(cell, stage, sweep.weights),
        names.GIT_COMMIT: sweep.git_commit,
        names.DATA_FINGERPRINT: sweep.data_fingerprint,
    }


def cell_params(cell: Cell, stage: CellStage, weights: Mapping[str, str]) -> dict[str, str]:
    """Parameters of a child run: what its stage key is made of, so that they never change. Keys are dotted paths.

    Args:
        cell: the cell.
        stage: its stage.
        weights: identity of the first weights by backbone; one that is not there is left out.
    """
    own = {"objective": cell.objective.resolved(), "seed": cell.seed}
    return dict(_flat(own, "")) | _shared_settings(cell, stage, weights)


def objective_key(cell: Cell) -> str:
    """Hash of an objective with all its parameters: 16 hex digits."""
    return content_id(cell.objective.resolved())


def settings_key(cell: Cell, stage: CellStage, weights: Mapping[str, str]) -> str:
    """Hash of all that a result depends on but the data's content, the objective and the seed: 16 hex digits."""
    return content_id(_shared_settings(cell, stage, weights))


def _shared_settings(cell: Cell, stage: CellStage, weights: Mapping[str, str]) -> dict[str, str]:
    past = cell.stages[: cell.stages.index(stage) + 1]
    stages = {
        one.name: {key: value for key, value in to_mapping(one.config).items() if key not in _NOT_OF_THE_STAGE}
        for one in past
    }
    settings = {
        "numerics": NUMERICS_VERSION,
        "data": to_mapping(cell.data),
        "model": to_mapping(cell.model),
        "precision": stage.precision,
        "stages": stages,
    }
    found = dict(_flat(settings, ""))
    backbone = cell.model.backbone.name
    return found | ({"model.backbone_weights": weights[backbone]} if backbone in weights else {})


def _flat(settings: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in settings.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            # A backbone's name is its identity, a dataset's is a label.
            if "backbone" in path:
                yield path, str(value["name"])
                continue
            yield from _flat(value, f"{path}.")
        elif key not in _NOT_OF_THE_CELL and not (key in _UNSAID and value == _UNSAID[key]):
            yield path, _text(value)


def _text(value: Any) -> str:
    """Equal settings as equal text: `1` and `1.0` are one number."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)[:_MAX_TEXT]
