"""The rules for a sweep's settings beyond types and bounds. Each check returns its value or raises a `ConfigError`."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_type_hints
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, ConfigDict, Field

from goal_sweep.goal_core.basics.errors import ConfigError, UnknownNameError
from goal_sweep.goal_core.basics.ranges import InRange
from goal_sweep.goal_core.basics.registry import Registry
from goal_sweep.goal_core.models.config import BackboneConfig
from goal_sweep.goal_core.objectives import baselines, pair_weights, triplet_weights
from goal_sweep.goal_core.training.config import StageConfig

T = TypeVar("T", bound=Sequence[Any])
STAGE_ORDER: tuple[str, ...] = get_args(get_type_hints(StageConfig)["name"])
"""The stages that a cell can have, in training order."""
_SECRET = re.compile(r"passw(or)?d|pwd|token(?!iz)|secret|access_key|api_?key")


def looks_secret(name: str) -> bool:
    """Whether a variable or a setting is named like a secret."""
    return name not in ("PWD", "OLDPWD") and _SECRET.search(name.lower()) is not None


def distinct(values: T) -> T:
    """Refuse a value that comes twice; `1` and `1.0` are the same, `1` and `true` are not."""
    marked = [(isinstance(value, bool), value) for value in values]
    if twice := [str(value) for number, (_, value) in enumerate(marked) if marked[number] in marked[:number]]:
        raise ConfigError(f"must be distinct, got {', '.join(dict.fromkeys(twice))} more than once")
    return values


def registered(registry: Registry[Any]) -> Callable[[str], str]:
    """A check that a name is in a registry."""
    return lambda name: registry[name].name


def _check_objective(name: str) -> str:
    if name in baselines:
        raise ConfigError(f"{name} is a baseline, for objectives.baselines")
    if name not in (grid := [f"{pair}/{triplet}" for pair in pair_weights for triplet in triplet_weights]):
        raise UnknownNameError("objective", name, grid)
    return name


def _check_stages(stages: tuple[StageConfig, ...]) -> tuple[StageConfig, ...]:
    names = distinct([stage.name for stage in stages])
    if sorted(names, key=STAGE_ORDER.index) != names:
        raise ConfigError(f"must be in the order {', '.join(STAGE_ORDER)}; got {', '.join(names)}")
    return stages


def _check_backbones(backbones: tuple[BackboneConfig, ...]) -> tuple[BackboneConfig, ...]:
    distinct([backbone.name for backbone in backbones])
    return backbones


def _check_store(place: str) -> str:
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", check_tracking(place))
    # Of an object store, a bucket and plain names: no server is named, because sweep files are passed on.
    if scheme and not re.match(r"file:///|s3://[A-Za-z0-9._-]+(/(?!\.\.?(/|$))[^/?#\0-\x1f]+)*/?$", place):
        raise ConfigError(
            f"must be a folder or s3://bucket/prefix (whose server AWS_ENDPOINT_URL names), got {place!r}"
        )
    return place


def check_tracking(place: str) -> str:
    """Refuse credentials, because sweep files are copied into the store and shown in MLflow; never repeat them."""
    if not place:
        raise ConfigError("must not be empty")
    try:
        parts = urlsplit(place)
        user, password = parts.username, parts.password
    except ValueError:
        raise ConfigError("is not a valid URI") from None
    in_query = any(looks_secret(name) for name, _ in parse_qsl(parts.query))
    if password is not None or (user and parts.scheme in ("http", "https")) or in_query:
        raise ConfigError(
            "must not carry credentials such as user:password@, because sweep files are stored and shown; "
            "set them as environment variables (MLflow: MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD)"
        )
    return place


Some = Field(min_length=1)
Name = Annotated[str, Field(pattern=r"^[a-z0-9_-][a-z0-9_.-]*$", max_length=200)]  # a report's files add to it
Seeds = Annotated[tuple[Annotated[int, Field(ge=0, lt=2**63)], ...], Some, AfterValidator(distinct)]
Stages = Annotated[tuple[StageConfig, ...], Some, AfterValidator(_check_stages)]
Backbones = Annotated[tuple[BackboneConfig, ...], Some, AfterValidator(_check_backbones)]
Objectives = Annotated[tuple[Annotated[str, AfterValidator(_check_objective)], ...], AfterValidator(distinct)]
StorePlace = Annotated[str, AfterValidator(_check_store)]
TrackingPlace = Annotated[str, AfterValidator(check_tracking)]


class Settings(InRange):
    """Base of a section of settings: numbers keep to their ranges; unknown keys, NaN and infinity are refused."""

    __slots__ = ()
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", allow_inf_nan=False)


def failures(check: Callable[..., object], *of: Any) -> tuple[str, ...]:
    """The messages of a check that raises a `ConfigError`."""
    try:
        check(*of)
    except ConfigError as error:
        return error.problems
    return ()


def refuse(problems: Iterable[str]) -> None:
    """Raise one `ConfigError` that lists all problems, if there are any."""
    if found := list(problems):
        raise ConfigError(*found)
