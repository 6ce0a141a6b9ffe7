"""Axes: settings with a list in the place of one value, which multiply a sweep into configurations.

They leave the batches alone, so the cells of all configurations can share units like the objectives do.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple, cast, get_type_hints

from pydantic import ValidationError

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.goal_core.models.frameworks import frameworks
from goal_sweep.goal_core.objectives.variants import Variant
from goal_sweep.goal_core.objectives.weights import Value
from goal_sweep.goal_core.training.config import Precision, StageConfig
from goal_sweep.sweeps.checks import failures, refuse
from goal_sweep.sweeps.identity import reader_of

AxisValue = bool | int | float | str | tuple[int, ...]
ANY = "*"
"""Stands for every value of an axis."""
VARIANT, PRECISION = "objectives.variant", "precision"
PARAMETER = "objectives.params."
_KINDS: dict[str, Any] = {VARIANT: Variant, PRECISION: Precision}
_STAGE_TYPES = get_type_hints(StageConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting of a sweep that may have several values."""

    key: str
    """`objectives.variant`, `objectives.params.NAME`, `stages.STAGE.SETTING` or `precision`."""

    @property
    def stage(self) -> str:
        """The stage whose setting it is; empty for one of the objectives."""
        return self.key.split(".")[1] if self.key.startswith("stages.") else ""

    @property
    def setting(self) -> str:
        """The setting alone, such as `tau` or `lr`."""
        return self.key.rpartition(".")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis(Setting):
    """One setting with several values, which multiply a sweep."""

    values: tuple[AxisValue, ...]
    """At least two, distinct. The first is that of the sweep's own settings."""


class Configuration(NamedTuple):
    """A sweep's settings with one value of each axis."""

    values: tuple[AxisValue, ...]
    objectives: Any
    stages: tuple[StageConfig, ...]
    precision: Precision


def combinations(axes: Sequence[Axis]) -> Iterator[dict[str, AxisValue]]:
    """Every combination of the values of some axes by key, that of the last axis changing fastest; one without axes."""
    for values in product(*(axis.values for axis in axes)):
        yield dict(zip((axis.key for axis in axes), values, strict=True))


def check_axes(config: Any) -> None:
    """Refuse axes that change nothing, and configurations that are not valid."""
    axes: Sequence[Axis] = config.axes
    refuse(f"{axis.key}: takes one value, because {why}" for axis in axes if (why := idle(config, axis)))
    for values in combinations(axes) if axes else ():
        named = label(zip(axis_names(axes), values.values(), strict=True))
        refuse(f"{named}: {text}" for text in failures(settings_at, config, values))


def idle(config: Any, searched: Setting) -> str:
    """Why a setting changes nothing in this sweep, so that its values would all train the same; empty if it may."""
    model, name = config.model, searched.setting if searched.stage else ""
    if name == "bert_lr_scale" and "bert" not in frameworks[model.framework].function.uses and not model.text.encoder:
        return f"framework {model.framework} has no BERT"
    if name in ("backbone_lr_scale", "frozen_epochs") and searched.stage != "finetune":
        return f"stage {searched.stage} does not train the backbone"
    return ""


def settings_at(config: Any, values: Mapping[str, AxisValue]) -> Configuration:
    """A sweep's settings with other values of some, by `Setting.key`; a `ConfigError` if they are not allowed."""
    objectives: dict[str, Any] = {"params": dict(config.objectives.params)}
    stages: dict[str, dict[str, Any]] = {stage.name: {} for stage in config.stages}
    for setting, value in ((Setting(key=key), value) for key, value in values.items() if key != PRECISION):
        own = stages[setting.stage] if setting.stage else objectives if setting.key == VARIANT else objectives["params"]
        own[setting.setting] = value
    return Configuration(
        tuple(values.values()),
        replace(config.objectives, **objectives) if values else config.objectives,
        tuple(replace(stage, **stages[stage.name]) if stages[stage.name] else stage for stage in config.stages),
        cast(Precision, values.get(PRECISION, config.precision)),
    )


def checked_value(config: Any, key: str, value: object) -> AxisValue:
    """A value as the setting under a key has it; a `ConfigError` if it cannot have it in this sweep."""
    setting = Setting(key=key)
    kind = _KINDS.get(key) or (_STAGE_TYPES[setting.setting] if setting.stage else Value)
    try:
        checked: AxisValue = reader_of(kind).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        said = dict.fromkeys(one["msg"].replace("Input should", "must") for one in error.errors())
        raise ConfigError(f"{' or '.join(said)}, got {value!r}") from error
    framework = frameworks[config.model.framework].function()
    try:
        for objective in settings_at(config, {key: checked}).objectives.configs:
            framework.objective(objective)
    except ConfigError as error:
        raise ConfigError(*(text.removeprefix(f"params.{setting.setting}: ") for text in error.problems)) from error
    return checked


def axis_names(axes: Sequence[Setting]) -> list[str]:
    """What each axis is called in labels: its setting alone, or with where it belongs if two have the same setting."""
    counts = Counter(axis.setting for axis in axes)
    whole = [axis.key.partition(".")[2].replace("params.", "") for axis in axes]
    return [axis.setting if counts[axis.setting] == 1 else name for axis, name in zip(axes, whole, strict=True)]


def label(values: Iterable[tuple[str, AxisValue]]) -> str:
    """Names of axes and their values, such as `tau 5 lr 0.0002`. No name and no value contains a space."""
    return " ".join(f"{name} {value_text(value)}" for name, value in values)


def value_text(value: AxisValue) -> str:
    """A value in a label: `5`, `0.0002`, `true`, `released`, or `10+15` for a list."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "+".join(map(str, value)) or "none"
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return "_".join(str(value).split())


def place_of(configurations: Sequence[Configuration], axes: Sequence[Axis], stages: Sequence[str]) -> str:
    """What is the same at some configurations, by the values of the axes that touch its stages, or by `ANY`."""
    words: list[tuple[str, AxisValue]] = []
    for number, (axis, name) in enumerate(zip(axes, axis_names(axes), strict=True)):
        if axis.stage in ("", *stages):
            taken = {configuration.values[number] for configuration in configurations}
            words.append((name, configurations[0].values[number] if len(taken) < len(axis.values) else ANY))
    return label(words)


def needed(place: str) -> str:
    """The values in what `place_of` gives without those that a training does not need."""
    words = place.split()
    return " ".join(f"{name} {value}" for name, value in zip(words[::2], words[1::2], strict=True) if value != ANY)
