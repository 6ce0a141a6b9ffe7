"""The tags and parameters that goal-sweep writes to MLflow for a sweep and its trainings."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from mlflow.entities import Dataset, DatasetInput, InputTag

from runners.store import LOG
from runners.tracking import schema as names
from sweeps import Cell, ResolvedSweep, Training, content_id
from sweeps.axes import axis_names, value_text

_MAX_TEXT = 4000
_MAX_KEYS = 300
"""Keys in one tag, of 8,000 characters at most."""
_SOURCE = {names.SOURCE_NAME: "goal-sweep launch", names.SOURCE_TYPE: "LOCAL"}


def sweep_tags(sweep: ResolvedSweep) -> dict[str, str]:
    """Tags of the parent run: what the sweep asks for."""
    config = sweep.config
    objectives = [f"{pair}/{triplet}" for pair, triplet in config.objectives.names]
    keys = dict.fromkeys(
        objective_key(cell)
        for name in objectives
        for cell in sweep.cells
        if cell.objective.name == name and cell.tested
    )
    return {
        names.ROLE: names.ROLE_SWEEP,
        names.SWEEP: config.name,
        names.SEEDS: json.dumps(list(config.seeds)),
        names.OBJECTIVES: json.dumps(objectives),
        names.STAGES: json.dumps([stage.name for stage in config.stages]),
        **_listed(names.OBJECTIVE_KEYS, list(keys)),
        **_listed(names.SETTINGS_KEYS, list(dict.fromkeys(map(settings_key, _by_cell(sweep))))),
        names.DATA_FINGERPRINT: sweep.data_fingerprint,
        names.STORE: config.store,
        **({names.AXES: json.dumps({"axes": _axes(sweep), "trainings": len(sweep.reporting)})} if config.axes else {}),
        **({names.BUDGET: str(config.tune.budget)} if config.tune else {}),
        **_SOURCE,
    }


def stale_tags(sweep: ResolvedSweep, tags: Collection[str]) -> list[str]:
    """The parent run's tags that an earlier form of the sweep had, with axes or a search, and this one has not."""
    now = sweep_tags(sweep)
    continued = tuple(f"{tag}." for tag in (names.OBJECTIVE_KEYS, names.SETTINGS_KEYS))
    return [tag for tag in tags if tag not in now and (tag in (names.AXES, names.BUDGET) or tag.startswith(continued))]


def _listed(tag: str, items: Sequence[str]) -> dict[str, str]:
    """A list as a tag, or as several where MLflow would cut it off."""
    parts = [items[start : start + _MAX_KEYS] for start in range(0, len(items), _MAX_KEYS)] or [[]]
    return {tag if number == 1 else f"{tag}.{number}": json.dumps(part) for number, part in enumerate(parts, start=1)}


def _axes(sweep: ResolvedSweep) -> list[dict[str, Any]]:
    axes = sweep.config.axes
    return [
        {"name": name, "stage": axis.stage, "values": list(map(value_text, axis.values))}
        for axis, name in zip(axes, axis_names(axes), strict=True)
    ]


def training_tags(training: Training) -> dict[str, str]:
    """Tags that identify a training's run. Tags of its status and its code come from its attempts."""
    cell = training.cell
    return {
        names.ROLE: names.ROLE_CELL if training.number is None else names.ROLE_CANDIDATE,
        names.CELL: cell.id,
        names.STAGE: training.stage.name,
        names.STAGE_KEY: training.key,
        names.PAIR: cell.objective.pair,
        names.TRIPLET: cell.objective.triplet,
        names.SEED: str(cell.seed),
        names.BACKBONE: cell.model.backbone.name,
        names.FRAMEWORK: cell.model.framework,
        names.DATASET: cell.data.name,
        names.VARIANT: cell.objective.variant,
        names.OBJECTIVE: cell.objective.name,
        names.OBJECTIVE_KEY: objective_key(cell),
        names.SETTINGS_KEY: settings_key(training),
        names.DATA_FINGERPRINT: cell.data_fingerprint,
        names.LOG: f"{training_path(training)}/{LOG}",
        **({names.POINT: training.place} if training.place else {}),
        **({names.GRID: ",".join(training.grids)} if training.grids else {}),
        **({} if training.number is None else {names.CANDIDATE: str(training.number)}),
        **_SOURCE,
    }


def training_path(training: Training) -> str:
    """The folder of a training in the results folder, with forward slashes."""
    return f"cells/{training.cell.id}/{training.stage.name}-{training.key}"


def training_params(training: Training) -> dict[str, str]:
    """Parameters of a training's run: the settings that its key hashes, which never change. Names are dotted paths."""
    return {name: text[:_MAX_TEXT] for name, text in training.settings.items()}


def training_dataset(training: Training) -> DatasetInput:
    """The data of a training as MLflow's page shows it; the digest is the data's fingerprint."""
    data = training.cell.data
    source = {"uri": data.root} if data.root else {"uri": f"{data.format}:{data.name}"}
    dataset = Dataset(data.name, training.cell.data_fingerprint, "local" if data.root else "code", json.dumps(source))
    return DatasetInput(dataset, [InputTag(names.DATASET_USE, "training")])


def objective_key(cell: Cell) -> str:
    """Hash of an objective with all its parameters: 16 hex digits."""
    return content_id(cell.objective.resolved())


def settings_key(training: Training) -> str:
    """Hash of all that a result depends on, except the data's content, the objective and the seed: 16 hex digits."""
    params = training_params(training).items()
    return content_id({name: text for name, text in params if name != "seed" and not name.startswith("objective.")})


def _by_cell(sweep: ResolvedSweep) -> Iterator[Training]:
    of_cell: dict[str, list[Training]] = {}
    for training in sweep.reporting:
        of_cell.setdefault(training.cell.id, []).append(training)
    for trainings in of_cell.values():
        yield from trainings
