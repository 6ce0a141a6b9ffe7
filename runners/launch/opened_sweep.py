"""A sweep file made ready: its data open, its cells with their ids, its store. What every command starts from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from goal_core.checkpoints import check_initial_weights, initial_weights_id
from goal_core.data import Dataset, open_dataset
from goal_core.errors import ConfigError
from goal_core.training import TrainingPlan, UnitPlan
from runners.execution.worker import UnitJob
from runners.launch.progress import SweepProgress
from runners.store.status import TrainingStatus
from runners.store.store import StageRef, Store
from runners.store.training_folder import BEST
from sweeps import Cell, SweepConfig, Unit, expand, load_sweep, to_mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedSweep:
    """A sweep, ready to be planned, shown or launched."""

    config: SweepConfig
    dataset: Dataset
    weights: Mapping[str, str]
    """Identity of the first weights of each backbone."""
    cells: list[Cell]
    store: Store

    def ref(self, cell: Cell, stage: int) -> StageRef:
        """Where one stage of a cell is in the store."""
        return StageRef(cell.id, cell.stages[stage].name, cell.stages[stage].key)

    def refs(self) -> list[tuple[Cell, int, StageRef]]:
        """Every cell and stage, stage by stage."""
        return [(cell, stage, self.ref(cell, stage)) for stage in range(len(self.config.stages)) for cell in self.cells]

    def statuses(self) -> dict[StageRef, TrainingStatus]:
        """How far everything is, as the store tells it."""
        return self.store.status([ref for _, _, ref in self.refs()], max_attempts=self.config.resources.max_attempts)

    def board(self) -> SweepProgress:
        """The sweep as it stands in the store."""
        board, statuses = SweepProgress(self.cells), self.statuses()
        for cell, stage, ref in self.refs():
            status, name = statuses[ref], cell.stages[stage].name
            if status.state == "done":
                board.done(cell.id, name, status.result)
            elif status.state == "failed":
                board.failed(cell.id, name, status.reason)
            elif status.state == "running":
                board.running(cell.id, name, status.epochs)
        return board

    def describe(self, cell: Cell) -> dict[str, Any]:
        """What ``cell.json`` says of a cell: the model that it is, as JSON."""
        described: dict[str, Any] = to_mapping(cell)
        # Stages belong to sweeps, of which several can share a cell; each stage's folder speaks for itself.
        del described["stages"]
        weights = self.weights[cell.model.backbone.name]
        return {"label": cell.label, "data_fingerprint": self.dataset.fingerprint, "weights": weights, **described}

    @property
    def tracking_uri(self) -> str:
        """MLflow's tracking URI, with the store's folder filled in."""
        return self.config.tracking.replace("{store}", str(self.store.root))

    @property
    def device(self) -> str:
        """`cuda` when units are given GPUs, else `cpu`."""
        return "cuda" if self.config.resources.gpus > 0 else "cpu"

    def job(self, unit: Unit, launch_id: str, forgiven: Mapping[str, int]) -> UnitJob:
        """A unit as a worker takes it.

        Args:
            unit: the unit.
            launch_id: this launch.
            forgiven: charged attempts that do not count any more, by stage key.
        """
        first, stage = unit.cells[0], unit.stage_index
        plans = []
        for cell in unit.cells:
            before = self.store.folder(self.ref(cell, stage - 1)).path(BEST) if stage else None
            plans.append(TrainingPlan(cell_id=cell.id, objective=cell.objective, init=before))
        resources = self.config.resources
        return UnitJob(
            label=unit.label,
            plan=UnitPlan(
                cells=tuple(plans),
                data=first.data,
                model=first.model,
                seed=first.seed,
                stage=unit.stage,
                precision=first.stages[stage].precision,
                device=self.device,
                threads=resources.cpus,
                loader_workers=resources.loader_workers,
                cache=self.store.root / "features",
            ),
            stage_keys={cell.id: cell.stages[stage].key for cell in unit.cells},
            store=str(self.store.root),
            launch_id=launch_id,
            max_attempts={
                cell.id: resources.max_attempts + forgiven.get(cell.stages[stage].key, 0) for cell in unit.cells
            },
            watchdog=resources.watchdog,
        )

    def check_trainable(self) -> None:
        """Check what only shows when training begins: batches that fit the data, weights that fit the backbone.

        Raises:
            ConfigError: a batch is larger than the training split.
            WeightsError: weights do not fit.
        """
        captions = self.dataset.splits["train"].num_captions
        for stage in self.config.stages:
            if stage.batch_size > captions:
                raise ConfigError(
                    f"stages.{stage.name}.batch_size = {stage.batch_size} is larger than the data: the train split of "
                    f"{self.dataset.name!r} has {captions} captions"
                )
        for model in self.config.model.models:
            check_initial_weights(model, self.config.data, self.dataset)


def open_sweep_file(
    sweep: str,
    *,
    overrides: Sequence[str] = (),
    store: str | None = None,
    tracking_uri: str | None = None,
) -> OpenedSweep:
    """Load a sweep and everything that its cells' ids depend on.

    Args:
        sweep: path or shipped name.
        overrides: ``key=value`` settings that replace the file's.
        store: replaces the file's store.
        tracking_uri: replaces the file's tracking.

    Raises:
        GoalError: the sweep file, the data or the weights are not as they should be.
    """
    given = [*overrides]
    given += [f"store={json.dumps(store)}"] if store is not None else []
    given += [f"tracking={json.dumps(tracking_uri)}"] if tracking_uri is not None else []
    config = load_sweep(sweep, given)
    results = Store(config.store)
    dataset = open_dataset(config.data)
    weights = {model.backbone.name: initial_weights_id(model) for model in config.model.models}
    cells = expand(config, dataset.fingerprint, weights)
    return OpenedSweep(config=config, dataset=dataset, weights=weights, cells=cells, store=results)
