"""Expand a sweep into its cells and their trainings, and say how many cells that are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, Final, Literal, NamedTuple

from goal_sweep.goal_core.data.config import DataConfig
from goal_sweep.goal_core.models.config import ModelConfig
from goal_sweep.goal_core.models.frameworks import framework_of
from goal_sweep.goal_core.objectives.config import ObjectiveConfig
from goal_sweep.goal_core.training.config import Precision, StageConfig
from goal_sweep.sweeps.axes import Configuration, axis_names, label, needed, place_of
from goal_sweep.sweeps.identity import cell_settings, content_id, flat_text, stage_key, stage_settings, to_mapping
from goal_sweep.sweeps.results import DEFAULT, LIMITS, TUNED, Requested
from goal_sweep.sweeps.schema import SweepConfig
from goal_sweep.sweeps.tuning import Candidate, Space, Study

CANDIDATES: Final = "candidates"
"""Where a sweep asks for a cell in a search; like `TUNED` also the name of a table."""
Grid = Literal["default", "tuned"]


class Block(NamedTuple):
    """One table: all objectives and seeds of one dataset, framework, backbone, stage and configuration."""

    dataset: str
    framework: str
    backbone: str
    stage: str
    configuration: str = ""
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
    """Content id of the initial weights (`goal_core.models.frameworks.initial_weights_id`)."""
    tested: bool = True
    """Whether its trainings end with numbers of the test split; those of a candidate do not."""

    @property
    def label(self) -> str:
        """Objective, backbone and seed: `sig-ms/cir resnet152 seed 1`."""
        return f"{self.objective.name} {self.model.backbone.name} seed {self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Training:
    """One stage of one cell: what is scheduled, stored, tracked, shown and reported. Equal are those of equal keys."""

    cell: Cell
    stage: StageConfig
    key: str
    """The stage key: 16 hex digits that hash the cell and the settings of the stages up to and including this one."""
    precision: Precision
    before: Training | None
    """The training of the stage before, whose best weights this one starts from; None in the first stage."""
    place: str = ""
    """Its values of the sweep's axes, such as `tau * lr 0.0002`; `*` stands for every value."""
    configurations: tuple[str, ...] = ("",)
    """Those in whose tables it stands: several, if it does not have a parameter that is an axis."""
    values: str = ""
    """Values of the settings that a search tried or chose, such as `tau 3.5 lr 0.004`; empty for the sweep's own."""
    number: int | None = None
    """The number of the candidate whose training it is; None for one that reports."""
    grids: tuple[Grid, ...] = ()
    """The grids in which it reports; empty for a candidate, and in a sweep that does not tune."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Training) and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def name(self) -> str:
        """The name shown to people: `sig-ms/cir resnet152 seed 1 (frozen)`, with axes `... seed 1 tau 5 (frozen)`."""
        return " ".join(word for word in (self.cell.label, self.configuration, f"({self.stage.name})") if word)

    @property
    def configuration(self) -> str:
        """The values that it does not share with all trainings of its objective, such as `candidate 3 lr 0.0002`."""
        number = "" if self.number is None else f"candidate {self.number}"
        return " ".join(words for words in (number, needed(self.place), self.values) if words)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The tables that show its result."""
        model = self.cell.model
        own = self.cell.data.name, model.framework, model.backbone.name, self.stage.name
        return tuple(Block(*own, configuration) for configuration in self.configurations)

    @property
    def settings(self) -> dict[str, str]:
        """The settings that decide its result and that its framework reads, as text by name: `stages.frozen.lr`."""
        hashed = cell_settings(self.cell) | stage_settings(self.stages, self.precision)
        named = {key: value for key, value in hashed.items() if key not in ("data_fingerprint", "tested")}
        named["data"] |= {name: value for name in LIMITS if (value := getattr(self.cell.data, name, 0))}
        has_bert = "bert" in named["model"]
        return {name: text for name, text in flat_text(named) if has_bert or not name.endswith(".bert_lr_scale")}

    @property
    def stages(self) -> tuple[StageConfig, ...]:
        """The stages up to and including this one, in order."""
        return (*(self.before.stages if self.before else ()), self.stage)


class _Place(NamedTuple):
    cell: Cell
    configuration: Configuration
    grid: Literal[Grid, "candidates"] = DEFAULT
    candidate: Candidate | None = None
    """What a search tries or chose; None for the sweep's own settings."""


@dataclass(frozen=True, kw_only=True)
class ResolvedSweep:
    """A sweep with everything that its cell ids depend on."""

    config: SweepConfig
    data_fingerprint: str
    """Hash of the dataset's images and captions."""
    weights: Mapping[str, str]
    """Content id of each backbone's initial weights, by the backbone's name."""
    studies: tuple[Study, ...] = ()
    """The sweep's search by now: by backbone, then by objective. Empty without `tune`, or if nobody looked."""

    @property
    def requested(self) -> Requested:
        """What determines its trainings. The places of store and tracking stay out: a URI may contain a password."""
        config = {name: value for name, value in to_mapping(self.config).items() if name not in ("store", "tracking")}
        return Requested(config=config, data_fingerprint=self.data_fingerprint, weights=dict(self.weights))

    @property
    def is_searching(self) -> bool:
        """Whether candidates of its search are still to be trained, before anything that reports."""
        return not all(study.is_over for study in self.studies)

    @cached_property
    def cells(self) -> list[Cell]:
        """All cells, each once: backbones x seeds x configurations of the axes x objectives, then those of a search.

        Objectives change fastest and follow the table, row by row (each pair weight with every triplet weight).
        """
        return list({place.cell.id: place.cell for place in self._placed}.values())

    @cached_property
    def spaces(self) -> dict[tuple[str, str], Space]:
        """What the sweep searches for each objective, by (pair, triplet); none without `tune`."""
        return {name: Space(self.config, name) for name in self.config.objectives.names if self.config.tune}

    @cached_property
    def by_stage(self) -> list[list[Training]]:
        """The trainings of each stage, in the order of the cells. What is the same at several configurations is one."""
        stages: list[dict[str, Training]] = []
        for index in range(len(self.config.stages)):
            places: dict[str, list[_Place]] = {}
            for place in self._placed:
                places.setdefault(self._key(place, index), []).append(place)
            here = {}
            for key, several in places.items():
                before = stages[-1][self._key(several[0], index - 1)] if stages else None
                here[key] = self._training(key, index, several, before)
            stages.append(here)
        return [list(here.values()) for here in stages]

    @cached_property
    def trainings(self) -> list[Training]:
        """Every stage of every cell, ordered by stage, then by cell."""
        return [training for trainings in self.by_stage for training in trainings]

    @cached_property
    def reporting(self) -> list[Training]:
        """The trainings that report results: all but those of candidates."""
        return [training for training in self.trainings if training.number is None]

    @cached_property
    def _placed(self) -> list[_Place]:
        """Each cell wherever the sweep asks for it: one object for what is the same in several places."""
        config, placed, cells = self.config, list[_Place](), dict[Any, Cell]()

        def place(
            model: ModelConfig, objective: ObjectiveConfig, seed: int, configuration: Configuration, *of: Any
        ) -> None:
            asked = model.backbone.name, objective, seed, of[:1] == (CANDIDATES,)
            if asked not in cells:
                cell = self._cell(model, objective, seed, tested=not asked[-1])
                cells[asked] = cells.setdefault(cell.id, cell)
            placed.append(_Place(cells[asked], configuration, *of))

        own = [(at, objective) for at in config.configurations for objective in at.objectives.configs]
        for model, seed, (at, objective) in product(config.model.models, config.seeds, own):
            place(model, objective, seed, at)
        models = {model.backbone.name: model for model in config.model.models}
        tried = [(CANDIDATES, study, one) for study in self.studies for one in study.candidates]
        for grid, study, candidate in [*((TUNED, study, study.choice) for study in self.studies), *tried]:
            if candidate is not None and config.tune is not None:
                objective, configuration = self.spaces[study.objective].at(candidate.values)
                for seed in config.seeds if grid == TUNED else config.tune.seeds:
                    place(models[study.backbone], objective, seed, configuration, grid, candidate)
        return placed

    def _cell(self, model: ModelConfig, objective: ObjectiveConfig, seed: int, *, tested: bool) -> Cell:
        weights, fingerprint = self.weights[model.backbone.name], self.data_fingerprint
        objective = framework_of(model).objective(objective)
        cell = Cell(
            id="", data=self.config.data, model=model, objective=objective, seed=seed, data_fingerprint=fingerprint,
            weights_id=weights, tested=tested,
        )  # fmt: skip
        return replace(cell, id=content_id(cell_settings(cell)))

    def _key(self, place: _Place, index: int) -> str:
        return stage_key(place.cell.id, place.configuration.stages[: index + 1], place.configuration.precision)

    def _training(self, key: str, index: int, places: Sequence[_Place], before: Training | None) -> Training:
        configurations, first = [place.configuration for place in places if place.candidate is None], places[0]
        stages = [str(stage.name) for stage in self.config.stages[: index + 1]]
        grids, values, axes = dict.fromkeys(place.grid for place in places), "", self.config.axes
        named = [place_of([configuration], axes, stages) for configuration in configurations]
        if not configurations and first.candidate is not None:  # called by the values that its stages have so far
            own = self.spaces[first.cell.objective.pair, first.cell.objective.triplet].dimensions
            values = label(one for one in first.candidate.values.items() if own[one[0]].stage in ("", *stages))
        return Training(
            cell=first.cell,
            stage=first.configuration.stages[index],
            key=key,
            precision=first.configuration.precision,
            before=before,
            place=place_of(configurations, axes, stages) if configurations else "",
            configurations=(*dict.fromkeys(named), *(grid for grid in grids if grid != DEFAULT)),
            values=values,
            number=first.candidate.number if first.grid == CANDIDATES and first.candidate else None,
            grids=tuple(grid for grid in grids if grid != CANDIDATES) if self.config.tune is not None else (),
        )


def factors(sweep: ResolvedSweep) -> dict[str, int]:
    """The number of a sweep's own cells, and its factors; an objective counts once for each setting that it has."""
    cells = len((replace(sweep, studies=()) if sweep.studies else sweep).cells)  # a copy would expand everything anew
    backbones, seeds = len(sweep.config.model.backbones), len(sweep.config.seeds)
    return {"cells": cells, "backbones": backbones, "seeds": seeds, "objectives": cells // (backbones * seeds)}


def describe_size(sweep: ResolvedSweep) -> str:
    """How many cells a sweep has of its own, without those of a search, as a product."""
    sweep = replace(sweep, studies=()) if sweep.studies else sweep
    own, config = factors(sweep), sweep.config
    names = len(config.objectives.names)
    counts = {key: f"{count} {key if count != 1 else key[:-1]}" for key, count in {**own, "objectives": names}.items()}
    if own["objectives"] != names:
        counts["objectives"] = f"{own['objectives']} settings of {counts['objectives']}"
    axes = f", axes {', '.join(axis_names(config.axes))}" if config.axes else ""
    if (trained := len(sweep.by_stage[-1])) != own["cells"]:
        axes += f", so {trained} trainings of {config.stages[-1].name}"
    return f"{counts['cells']} = {counts['backbones']} x {counts['seeds']} x {counts['objectives']}{axes}"


def unopened(config: SweepConfig) -> ResolvedSweep:
    """A sweep whose data and weights are not on this machine. Its ids mean nothing."""
    unknown = dict.fromkeys((backbone.name for backbone in config.model.backbones), "unknown")
    return ResolvedSweep(config=config, data_fingerprint="unknown", weights=unknown)
