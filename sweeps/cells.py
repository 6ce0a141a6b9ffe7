"""Expand a sweep into its cells and their trainings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

from goal_core.data.config import DataConfig
from goal_core.errors import ConfigError
from goal_core.models.config import ModelConfig
from goal_core.objectives import ObjectiveConfig
from goal_core.training.config import Precision, StageConfig
from sweeps.axes import Labels, Point, needed
from sweeps.identity import cell_id, stage_key, to_mapping
from sweeps.schema import SweepConfig


class Block(NamedTuple):
    """One table: all objectives and seeds of one dataset, framework, backbone, stage and point."""

    dataset: str
    framework: str
    backbone: str
    stage: str
    point: str = ""
    """The values of the axes, such as `tau 5 lr 0.0002`; empty without axes."""


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
    place: str = ""
    """Its values of the sweep's axes, such as `tau * lr 0.0002`; `*` stands for every value."""
    points: tuple[str, ...] = ("",)
    """The points of the sweep in whose tables it stands: several, if it does not have a parameter that is an axis."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Training) and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def name(self) -> str:
        """The name shown to people: `sig-ms/cir resnet152 seed 1 (frozen)`, with axes `... seed 1 tau 5 (frozen)`."""
        return " ".join(word for word in (self.cell.label, self.point, f"({self.stage.name})") if word)

    @property
    def point(self) -> str:
        """The values of the sweep's axes that it needs, such as `lr 0.0002`."""
        return needed(self.place)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The tables that show its result."""
        model = self.cell.model
        own = self.cell.data.name, model.framework, model.backbone.name, self.stage.name
        return tuple(Block(*own, point) for point in self.points)

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
        return list({cell.id: cell for cell, _ in self._placed}.values())

    @cached_property
    def _placed(self) -> list[tuple[Cell, Point]]:
        """Each cell at each point of the axes."""
        return list(_place(self.config, self.data_fingerprint, self.weights))

    @cached_property
    def trainings(self) -> list[Training]:
        """Every stage of every cell, ordered by stage, then by cell."""
        return [training for trainings in self.by_stage for training in trainings]

    @cached_property
    def by_stage(self) -> list[list[Training]]:
        """The trainings of each stage, in the order of the cells. What is the same at several points is one."""
        found: list[dict[str, Training]] = []
        for index in range(len(self.config.stages)):
            names = Labels(self.config.axes, [one.name for one in self.config.stages[: index + 1]])
            at: dict[str, list[tuple[Cell, Point]]] = {}
            for cell, point in self._placed:
                at.setdefault(self._key(cell, point, index), []).append((cell, point))
            here = {}
            for key, places in at.items():
                (cell, first), points = places[0], [point for _, point in places]
                here[key] = Training(
                    cell=cell,
                    stage=first.stages[index],
                    key=key,
                    precision=self.config.precision,
                    before=found[-1][self._key(cell, first, index - 1)] if found else None,
                    place=names.shared(points),
                    points=tuple(dict.fromkeys(map(names.of_point, points))),
                )
            found.append(here)
        return [list(here.values()) for here in found]

    def _key(self, cell: Cell, point: Point, index: int) -> str:
        return stage_key(cell.id, point.stages[: index + 1], self.config.precision)


def expand(config: SweepConfig, data_fingerprint: str, weights: Mapping[str, str]) -> list[Cell]:
    """List all cells of a sweep.

    Args:
        config: the sweep.
        data_fingerprint: hash of the dataset's images and captions.
        weights: content id of each backbone's initial weights, by the backbone's name.

    Returns:
        backbones x seeds x points of the axes x objectives, the objective changing fastest; a cell that is the same at
        several points comes once. Backbones and seeds follow the sweep file; objectives follow the table, row by row
        (each pair weight with every triplet weight).

    Raises:
        ConfigError: `weights` lacks a backbone.
    """
    return ResolvedSweep(config=config, data_fingerprint=data_fingerprint, weights=weights).cells


def _place(config: SweepConfig, data_fingerprint: str, weights: Mapping[str, str]) -> Iterator[tuple[Cell, Point]]:
    """Each cell at each point of the axes: one object for what is the same cell at several."""
    lacking = [item.name for item in config.model.backbones if item.name not in weights]
    if lacking:
        raise ConfigError(f"the initial weights of {', '.join(lacking)} are not known")
    objectives = [(point, point.objectives.configs) for point in config.points]
    for model, seed in product(config.model.models, config.seeds):
        of_objective: dict[ObjectiveConfig, Cell] = {}
        of_id: dict[str, Cell] = {}
        for point, objective in ((point, one) for point, configs in objectives for one in configs):
            if objective not in of_objective:
                weights_id = weights[model.backbone.name]
                cell = _cell(config.data, data_fingerprint, model, weights_id, objective, seed)
                of_objective[objective] = of_id.setdefault(cell.id, cell)
            yield of_objective[objective], point


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
