"""The rules for a sweep's settings. Each check returns its value or raises a `ConfigError`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, get_args, get_type_hints
from urllib.parse import parse_qsl, urlsplit

from pydantic import ConfigDict

from goal_sweep.goal_core.basics.errors import ConfigError, UnknownNameError
from goal_sweep.goal_core.basics.plugins import Plugin
from goal_sweep.goal_core.basics.ranges import InRange
from goal_sweep.goal_core.basics.registry import Registry
from goal_sweep.goal_core.models.config import BackboneConfig
from goal_sweep.goal_core.objectives import baselines, pair_weights, triplet_weights
from goal_sweep.goal_core.training.config import StageConfig

STAGE_ORDER: tuple[str, ...] = get_args(get_type_hints(StageConfig)["name"])
"""The stages that a cell can have, in training order."""

_MAX_NAME = 200
"""A file system takes 255; a report's files add to the name."""
_SECRET = re.compile(r"passw(or)?d|pwd|token(?!iz)|secret|access_key|api_?key")


def looks_secret(name: str) -> bool:
    """Whether a variable or a setting is named like a secret."""
    return name not in ("PWD", "OLDPWD") and _SECRET.search(name.lower()) is not None


def announced(plugins: tuple[Plugin, ...]) -> tuple[Plugin, ...]:
    """Make known what plugins register."""
    for plugin in plugins:
        plugin.announce()
    return plugins


def check_name(name: str) -> str:
    """Check a sweep's name: only characters that every file system and MLflow accept."""
    if not re.fullmatch(r"[a-z0-9_-][a-z0-9_.-]*", name):
        raise ConfigError(f"name may contain only a-z, 0-9, '_', '-' and '.', and not start with '.', got {name!r}")
    if len(name) > _MAX_NAME:
        raise ConfigError(f"name may have at most {_MAX_NAME} characters, got {len(name)}")
    return name


def check_seeds(seeds: tuple[int, ...]) -> tuple[int, ...]:
    """Check the seeds: at least one, all distinct, none negative."""
    _check_list("seeds", seeds)
    if negative := [str(seed) for seed in seeds if seed < 0]:
        raise ConfigError(f"seeds must not be negative, got {', '.join(negative)}")
    if max(seeds) >= 2**63:
        raise ConfigError(f"seeds must be below 2^63, got {max(seeds)}")
    return seeds


def check_stages(stages: tuple[StageConfig, ...]) -> tuple[StageConfig, ...]:
    """Check the stages: at least one, each once, in training order."""
    names = [stage.name for stage in stages]
    _check_list("stages", names, STAGE_ORDER)
    if sorted(names, key=STAGE_ORDER.index) != names:
        raise ConfigError(f"stages must be in the order {', '.join(STAGE_ORDER)}; got {', '.join(names)}")
    return stages


def check_backbones(backbones: tuple[BackboneConfig, ...]) -> tuple[BackboneConfig, ...]:
    """Check the backbones: at least one, with distinct names."""
    _check_list("backbones", [backbone.name for backbone in backbones])
    return backbones


def check_names(key: str, known: Registry[Any], names: tuple[str, ...]) -> tuple[str, ...]:
    """Check registered names: all known, each once; of the grid's weights, for which `all` may stand, at least one."""
    options = [*known, *(["all"] if known is not baselines else [])]
    refuse([str(UnknownNameError(known.kind, name, options)) for name in names if name not in known])
    if names or "all" in options:
        _check_list(key, names, options)
    return names


check_baselines = partial(check_names, "baselines", baselines)


def check_only(names: tuple[str, ...]) -> tuple[str, ...]:
    """Check objectives written as `pair/triplet`, each once; an empty list is no restriction."""
    grid = [f"{pair}/{triplet}" for pair in pair_weights for triplet in triplet_weights]
    refuse([str(UnknownNameError("objective", name, grid)) for name in names if name not in grid])
    if names:
        _check_list("only", names)
    return names


def check_store(place: str) -> str:
    """Check the store: a folder or a place in a bucket, without credentials."""
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", _check_place("store", place))
    if scheme and not re.match(r"file:///|s3://[^/?#][^?#]*$", place):
        raise ConfigError(
            f"store must be a folder or s3://bucket/prefix (whose server AWS_ENDPOINT_URL names), got {place!r}"
        )
    return place


def check_tracking(place: str) -> str:
    """Check the tracking URI: not empty, without credentials."""
    return _check_place("tracking", place)


class Settings(InRange):
    """Base of a section of settings: numbers keep to their ranges; unknown keys, NaN and infinity are refused."""

    __slots__ = ()
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", allow_inf_nan=False)


def failures(*checks: Callable[[], object]) -> list[str]:
    """Run checks and collect the messages of those that raise a `ConfigError`."""
    messages: list[str] = []
    for check in checks:
        try:
            check()
        except ConfigError as error:
            messages += error.problems
    return messages


def refuse(problems: Sequence[str]) -> None:
    """Raise one `ConfigError` that lists all problems, if there are any."""
    if problems:
        raise ConfigError(*problems)


def _check_list(key: str, values: Sequence[object], known: Sequence[str] = ()) -> None:
    """Refuse an empty list, and one that has a value twice."""
    if not values:
        raise ConfigError(f"{key} must contain at least one{' of ' * bool(known)}{', '.join(known)}")
    if twice := [str(value) for value, count in Counter(values).items() if count > 1]:
        raise ConfigError(f"{key} must be distinct, got {', '.join(twice)} more than once")


def _check_place(key: str, place: str) -> str:
    """Refuse credentials, because sweep files are copied into the store and shown in MLflow; never repeat them."""
    if not place:
        raise ConfigError(f"{key} must not be empty")
    try:
        parts = urlsplit(place)
        user, password = parts.username, parts.password
    except ValueError:
        raise ConfigError(f"{key} is not a valid URI") from None
    in_query = any(looks_secret(name) for name, _ in parse_qsl(parts.query))
    if password is not None or (user and parts.scheme in ("http", "https")) or in_query:
        raise ConfigError(
            f"{key} must not carry credentials such as user:password@, because sweep files are stored and shown; "
            "set them as environment variables (MLflow: MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD)"
        )
    return place
