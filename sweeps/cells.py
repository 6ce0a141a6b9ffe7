"""Expand a sweep into its cells and their trainings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, Final, Literal, NamedTuple

from goal_core.basics.errors import ConfigError
from goal_core.data.config import DataConfig
from goal_core.models.config import ModelConfig
from goal_core.objectives import ObjectiveConfig
from goal_core.training.config import Precision, StageConfig
from sweeps.axes import Labels, Point, label, needed
from sweeps.identity import cell_settings, content_id, flat_text, stage_key, stage_settings, to_mapping
from sweeps.schema import SweepConfig
from sweeps.tuning import Candidate, Space

DEFAULT: Final = "default"
TUNED: Final = "tuned"
CANDIDATES: Final = "candidates"
"""Where a sweep asks for a cell: in the grid with its own settings, in that with those that were chosen, in a search.
The last two are also the names of tables."""
Grid = Literal["default", "tuned"]
"""The grids of a sweep that tunes."""
_Role = Literal[Grid, "candidates"]


class Block(NamedTuple):
    """One table: all objectives and seeds of one dataset, framework, backbone, stage and point."""

    dataset: str
    framework: str
    backbone: str
    stage: str
    point: str = ""
    """The values of the axes, such as `tau 5 lr 0.0002`; of a sweep that tunes, `CANDIDATES` or `TUNED`; else empty."""


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
    tested: bool = True
    """Whether its trainings end with numbers of the test split; those of a candidate do not."""

    @property
    def label(self) -> str:
        """Objective, backbone and seed: `sig-ms/cir resnet152 seed 1`."""
        return f"{self.objective.name} {self.model.backbone.name} seed {self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        """What its id hashes."""
        return cell_settings(
            data=self.data,
            data_fingerprint=self.data_fingerprint,
            model=self.model,
            weights_id=self.weights_id,
            objective=self.objective,
            seed=self.seed,
            tested=self.tested,
        )

    def describe(self) -> dict[str, Any]:
        """The content of ``cell.json``."""
        return {"label": self.label, **to_mapping(self)}


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
    values: str = ""
    """Values of the settings that a search tried or chose, such as `tau 3.5 lr 0.004`; empty for the sweep's own."""
    number: int | None = None
    """The number of the candidate whose training it is; None for one that reports."""
    grids: tuple[Grid, ...] = ()
    """The grids in which it reports; empty for a candidate, and in a sweep that does not tune."""
    until: int = 0
    """The epoch after which it ends, of a candidate that may end early; 0: the last of its stage."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Training) and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def name(self) -> str:
        """The name shown to people: `sig-ms/cir resnet152 seed 1 (frozen)`, with axes `... seed 1 tau 5 (frozen)`."""
        stage = f"({self.stage.name}{f' to epoch {self.until}' * bool(self.until)})"
        return " ".join(word for word in (self.cell.label, self.point, stage) if word)

    @property
    def point(self) -> str:
        """The values that it does not share with all trainings of its objective, such as `candidate 3 lr 0.0002`."""
        number = "" if self.number is None else f"candidate {self.number}"
        return " ".join(words for words in (number, needed(self.place), self.values) if words)

    @property
    def epochs(self) -> int:
        """The epoch after which it ends."""
        return self.until or self.stage.epochs

    @property
    def begins(self) -> int:
        """The epoch after which it begins: 0, or that at which the training ended which it continues."""
        return self.before.until if self.before is not None and self.continues else 0

    @property
    def num_epochs(self) -> int:
        """Epochs that it trains itself."""
        return self.epochs - self.begins

    @property
    def continues(self) -> bool:
        """Whether it continues the state of the training before it, a part of the same stage."""
        return self.before is not None and self.before.stage.name == self.stage.name

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The tables that show its result."""
        model = self.cell.model
        own = self.cell.data.name, model.framework, model.backbone.name, self.stage.name
        return tuple(Block(*own, point) for point in self.points)

    @property
    def settings(self) -> dict[str, str]:
        """The settings that its key hashes and its framework reads, as text by name, such as `stages.frozen.lr`."""
        hashed = self.cell.settings | stage_settings(self.stages, self.precision)
        named = {key: value for key, value in hashed.items() if key not in ("data_fingerprint", "tested", "until")}
        has_bert = "bert" in named["model"]
        return {name: text for name, text in flat_text(named) if has_bert or not name.endswith(".bert_lr_scale")}

    @property
    def stages(self) -> tuple[StageConfig, ...]:
        """The stages up to and including this one, in order."""
        if self.before is None or self.continues:
            return (self.stage,) if self.before is None else self.before.stages
        return (*self.before.stages, self.stage)


class _Place(NamedTuple):
    """A cell where a sweep asks for it."""

    cell: Cell
    point: Point
    """Its settings."""
    grid: _Role
    candidate: Candidate | None


@dataclass(frozen=True, kw_only=True)
class ResolvedSweep:
    """A sweep with everything that its cell ids depend on."""

    config: SweepConfig
    data_fingerprint: str
    """Hash of the dataset's images and captions."""
    weights: Mapping[str, str]
    """Content id of each backbone's initial weights, by the backbone's name."""
    candidates: tuple[Candidate, ...] = ()
    """The candidates that the sweep's search has proposed by now."""
    chosen: tuple[Candidate, ...] = ()
    """Those that were chosen, once the search is over: at most one for each backbone and objective."""

    @cached_property
    def cells(self) -> list[Cell]:
        """All cells; see `expand`. Those of candidates come after the others."""
        return list({one.cell.id: one.cell for one in self._placed}.values())

    @cached_property
    def reporting(self) -> list[Training]:
        """The trainings that report results: all but those of candidates."""
        return [training for training in self.trainings if training.number is None]

    @cached_property
    def spaces(self) -> dict[tuple[str, str], Space]:
        """What the sweep searches for each objective, by (pair, triplet); none without `tune`."""
        tune = self.config.tune
        names = () if tune is None else self.config.objectives.names
        return {name: Space(self.config, tune, *name) for name in names if tune is not None}

    @cached_property
    def _placed(self) -> list[_Place]:
        """Each cell wherever the sweep asks for it."""
        own = _place(self.config, self.data_fingerprint, self.weights)
        found = [_Place(cell, point, DEFAULT, None) for cell, point in own]
        cells = {place.cell.id: place.cell for place in found}
        models = {model.backbone.name: model for model in self.config.model.models}
        searched = self.config.tune.seeds if self.config.tune else ()
        asked: list[tuple[_Role, Candidate, int]]
        asked = [(TUNED, one, seed) for one, seed in product(self.chosen, self.config.seeds)]
        asked += [(CANDIDATES, one, seed) for one, seed in product(self.candidates, searched)]
        for grid, one, seed in asked:
            objective, point = self.spaces[one.pair, one.triplet].at(one.values)
            model, weights_id, tested = models[one.backbone], self.weights[one.backbone], grid == TUNED
            cell = _cell(
                data=self.config.data,
                data_fingerprint=self.data_fingerprint,
                model=model,
                weights_id=weights_id,
                objective=objective,
                seed=seed,
                tested=tested,
            )
            found.append(_Place(cells.setdefault(cell.id, cell), point, grid, one))
        return found

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
            at: dict[tuple[str, int], list[_Place]] = {}
            for place in self._placed:
                for until in self._ends(place, index):
                    at.setdefault((self._key(place, index, until), until), []).append(place)
            here: dict[str, Training] = {}
            for (key, until), places in at.items():
                rungs = self._ends(places[0], index)
                part = rungs.index(until)
                before = found[-1][self._key(places[0], index - 1)] if found else None
                if part:
                    before = here[self._key(places[0], index, rungs[part - 1])]
                here[key] = self._training(key, index, places, until, before, names)
            found.append(here)
        return [list(here.values()) for here in found]

    def _training(
        self, key: str, index: int, places: Sequence[_Place], until: int, before: Training | None, names: Labels
    ) -> Training:
        points, first = [place.point for place in places if place.candidate is None], places[0]
        tables = [one.grid for one in places if one.grid != DEFAULT]
        grids = [one.grid for one in places if one.grid != CANDIDATES] if self.config.tune is not None else []
        return Training(
            cell=first.cell,
            stage=first.point.stages[index],
            key=key,
            precision=self.config.precision,
            before=before,
            place=names.shared(points) if points else "",
            points=tuple(dict.fromkeys((*map(names.of_point, points), *tables))),
            values="" if points else self._values(first, index),
            number=first.candidate.number if first.grid == CANDIDATES and first.candidate else None,
            grids=tuple(dict.fromkeys(grids)),
            until=until,
        )

    def _values(self, place: _Place, index: int) -> str:
        """What a candidate's training is called by: the values that its stages up to one have."""
        if place.candidate is None:
            return ""
        space = self.spaces[place.candidate.pair, place.candidate.triplet]
        stages = ("", *(stage.name for stage in self.config.stages[: index + 1]))
        values = zip(space.dimensions, space.shown(place.candidate.values).items(), strict=True)
        return label(shown for dimension, shown in values if dimension.stage in stages)

    def _ends(self, place: _Place, index: int) -> tuple[int, ...]:
        """The epochs at which the parts of a stage end, one after the other; the last is 0 if that is its own end."""
        tune, last = self.config.tune, index == len(self.config.stages) - 1
        if not last or place.grid != CANDIDATES or place.candidate is None or tune is None or tune.stop_early is None:
            return (0,)
        until, rungs = place.candidate.until, tune.stop_early.rungs(place.point.stages[index].epochs)
        return tuple(rung for rung in rungs if rung <= until) if until else (*rungs, 0)

    def _key(self, place: _Place, index: int, until: int = 0) -> str:
        return stage_key(place.cell.id, place.point.stages[: index + 1], self.config.precision, until)


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
                cell = _cell(
                    data=config.data,
                    data_fingerprint=data_fingerprint,
                    model=model,
                    weights_id=weights_id,
                    objective=objective,
                    seed=seed,
                    tested=True,
                )
                of_objective[objective] = of_id.setdefault(cell.id, cell)
            yield of_objective[objective], point


def _cell(**what: Any) -> Cell:
    """The cell that has these fields, with its id."""
    return Cell(id=content_id(cell_settings(**what)), **what)
