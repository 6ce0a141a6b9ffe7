"""Expand a sweep into its cells and their trainings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from goal_core.data.config import DataConfig
from goal_core.errors import ConfigError
from goal_core.models.config import ModelConfig
from goal_core.objectives import ObjectiveConfig
from goal_core.training.config import Precision, StageConfig
from sweeps.identity import cell_id, stage_key, to_mapping
from sweeps.schema import SweepConfig


class Block(NamedTuple):
    """One table of the report: all objectives and seeds of one dataset, framework, backbone and stage."""

    dataset: str
    framework: str
    backbone: str
    stage: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One model to train: data, model, objective and seed."""

    id: str
    """Content hash of 16 hex digits; the same model has the same id in every sweep."""
    data: DataConfig
    model: ModelConfig
    objective: ObjectiveConfig
    seed: int
    data_fingerprint: str
    """Hash of the dataset's images and captions."""
    weights_id: str
    """Content id of the initial weights."""

    @property
    def label(self) -> str:
        """Objective, backbone and seed: `sig-ms/cir resnet152 seed 1`."""
        return f"{self.objective.name} {self.model.backbone.name} seed {self.seed}"

    def describe(self) -> dict[str, Any]:
        """The content of ``cell.json``."""
        described = {"label": self.label, "data_fingerprint": self.data_fingerprint, "weights": self.weights_id}
        own = {"id": self.id, "data": self.data, "model": self.model, "objective": self.objective, "seed": self.seed}
        return described | {name: to_mapping(value) for name, value in own.items()}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Training:
    """One stage of one cell: what is scheduled, leased, stored, tracked, shown and reported.

    Trainings are equal when their keys are.
    """

    cell: Cell
    stage: StageConfig
    key: str
    """The stage key: 16 hex digits that hash the cell and the settings of the stages up to and including this one."""
    precision: Precision
    """Arithmetic of the training steps."""
    before: Training | None
    """The training of the stage before, whose best weights this one starts from; None in the first stage."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Training) and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def name(self) -> str:
        """The name shown to people: `sig-ms/cir resnet152 seed 1 (frozen)`."""
        return f"{self.cell.label} ({self.stage.name})"

    @property
    def block(self) -> Block:
        """The table that shows its result."""
        model = self.cell.model
        return Block(self.cell.data.name, model.framework, model.backbone.name, self.stage.name)

    @property
    def stages(self) -> tuple[StageConfig, ...]:
        """The stages up to and including this one, in order."""
        return (*(self.before.stages if self.before else ()), self.stage)


@dataclass(frozen=True, kw_only=True)
class ResolvedSweep:
    """A sweep with everything that its cell ids depend on."""

    config: SweepConfig
    data_fingerprint: str
    """Hash of the dataset's images and captions."""
    weights: Mapping[str, str]
    """Content id of each backbone's initial weights, by the backbone's name."""

    @cached_property
    def cells(self) -> list[Cell]:
        """All cells; see `expand`."""
        return expand(self.config, self.data_fingerprint, self.weights)

    @cached_property
    def trainings(self) -> list[Training]:
        """Every stage of every cell, ordered by stage, then by cell."""
        return [training for trainings in self.by_stage for training in trainings]

    @cached_property
    def by_stage(self) -> list[list[Training]]:
        """The trainings of each stage, in the order of the cells."""
        stages: list[list[Training]] = []
        for index, stage in enumerate(self.config.stages):
            before = stages[-1] if stages else [None] * len(self.cells)
            stages.append(
                [
                    Training(
                        cell=cell,
                        stage=stage,
                        key=stage_key(cell.id, self.config.stages[: index + 1], self.config.precision),
                        precision=self.config.precision,
                        before=earlier,
                    )
                    for cell, earlier in zip(self.cells, before, strict=True)
                ]
            )
        return stages


def expand(config: SweepConfig, data_fingerprint: str, weights: Mapping[str, str]) -> list[Cell]:
    """List all cells of a sweep.

    Args:
        config: the sweep.
        data_fingerprint: hash of the dataset's images and captions.
        weights: content id of each backbone's initial weights, by the backbone's name.

    Returns:
        backbones x seeds x objectives, the objective changing fastest. Backbones and seeds follow the sweep file;
        objectives follow the table, row by row (each pair weight with every triplet weight).

    Raises:
        ConfigError: `weights` lacks a backbone.
    """
    lacking = [item.name for item in config.model.backbones if item.name not in weights]
    if lacking:
        raise ConfigError(f"the initial weights of {', '.join(lacking)} are not known")
    return [
        _cell(config.data, data_fingerprint, model, weights[model.backbone.name], objective, seed)
        for model in config.model.models
        for seed in config.seeds
        for objective in config.objectives.configs
    ]


def _cell(
    data: DataConfig, data_fingerprint: str, model: ModelConfig, weights_id: str, objective: ObjectiveConfig, seed: int
) -> Cell:
    identity = cell_id(
        data=data,
        data_fingerprint=data_fingerprint,
        model=model,
        weights_id=weights_id,
        objective=objective,
        seed=seed,
    )
    return Cell(
        id=identity,
        data=data,
        model=model,
        objective=objective,
        seed=seed,
        data_fingerprint=data_fingerprint,
        weights_id=weights_id,
    )
