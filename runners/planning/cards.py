"""How fast devices are: a JSON file for each, in the form in which `python -m benchmarks.gpu` measures it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.goal_core.training.config import Precision
from goal_sweep.runners.planning.devices import Devices

_Positive = Annotated[float, Field(gt=0)]
_Forward = Mapping[Precision | Literal["image_size"], _Positive]
_FOLDER: Final = Path(__file__).with_name("cards")
_REFERENCES: Final = {"cpu": _FOLDER / "epyc_core.json", "cuda": _FOLDER / "rtx_3090.json"}
_COMPARED: Final = ("resnet152", 224)
"""The backbone by which a card is compared with the reference of its kind, and the pixels per side of its images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What one kind of device takes. A number that its file lacks is 0 until it comes from the reference."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", allow_inf_nan=False)

    card: str
    """Its name, of a GPU as its driver says it."""
    kind: Literal["cpu", "cuda"]
    capability: str = ""
    memory_mb: _Positive | None = None
    """In mebibytes, as its driver says it."""
    source: str = ""
    measured_in: Precision
    """The precision in which `gmac_s` was measured."""
    forward_ms: Mapping[str, _Forward] = field(default_factory=dict)
    """By backbone, the pixels per side of an image, and the milliseconds in which it passes in each precision."""
    train_factor: _Positive = 0.0
    """Time of a training step of a backbone divided by that of a forward pass."""
    gmac_s: _Positive = 0.0
    """Seconds of training a head for 1e9 multiply-adds of its forward pass."""
    step_s: _Positive = 0.0
    """Seconds of a step of one cell besides the arithmetic: the objective, the optimiser, starting kernels."""
    precision_factor: Mapping[Precision, _Positive] = field(default_factory=dict)
    """Time in each precision divided by that in one of them."""

    def slower(self, precision: Precision) -> float:
        """The time that work takes in a precision, as a multiple of that in `measured_in`."""
        return self.precision_factor[precision] / self.precision_factor[self.measured_in]

    def forward_s(self, backbone: str, image_size: int, precision: Precision) -> float | None:
        """Seconds in which an image passes a backbone, by its area; None for a backbone that nobody has measured."""
        if (row := self.forward_ms.get(backbone)) is None:
            return None
        known = next(one for one in (precision, self.measured_in, *self.precision_factor) if one in row)
        factor = self.precision_factor[precision] / self.precision_factor[known]
        return row[known] / 1000 * factor * (image_size / row["image_size"]) ** 2


def choose_card(devices: Devices, given: str | None = None) -> tuple[Card, str]:
    """The card to plan with, and a line for the user where another one stands for that of the devices.

    Args:
        devices: the devices at hand.
        given: a file, or the name of a card, that the user asks for.

    Raises:
        ConfigError: there is no such card, its file is wrong, or it is of another kind.
    """
    kind: Literal["cpu", "cuda"] = "cuda" if devices.need.gpus else "cpu"
    names = [given] if given else [name for name in (devices.need.accelerator, devices.gpu) if name]
    cards = [_named(name, kind) for name in names]
    if given and Path(given).is_file():
        cards = [card for card in (_read(Path(given)),) if card.kind == kind]
    if own := [card for card in cards if card is not None]:
        return own[0], ""
    if given:
        known = ", ".join(repr(one.card) for one in _shipped() if one.kind == kind)
        raise ConfigError(f"--card {given}: neither the file of a {kind} card nor the name of one; there are {known}")
    reference = _read(_REFERENCES[kind])
    measure = "`python -m benchmarks.gpu --out DIR` on it measures them, --card DIR/gpu.json takes them"
    line = f"no prices for {names[0]} yet: hours are those of {reference.card}; {measure}" if names else ""
    return reference, line


def _named(name: str, kind: str) -> Card | None:
    """The shipped card with a name as a driver says it, or with some words of it, such as Ray's `H200`."""
    words = re.compile(rf"\b{re.escape(name)}\b", re.IGNORECASE)
    return next((card for card in _shipped() if card.kind == kind and words.search(card.card)), None)


@cache
def _shipped() -> tuple[Card, ...]:
    return tuple(_read(path) for path in sorted(_FOLDER.glob("*.json")))


def _read(path: Path) -> Card:
    """Read a card, or the one in a page of `benchmarks.gpu`, and complete it."""
    try:
        content: Any = from_json(path.read_bytes())
        card = TypeAdapter(Card).validate_python(
            content.get("prices", content) if isinstance(content, dict) else content
        )
        if lacking := [name for name, row in card.forward_ms.items() if "image_size" not in row or len(row) < 2]:
            raise ValueError(f"forward_ms: image_size or every time is missing of {', '.join(lacking)}")
        return card if path == _REFERENCES[card.kind] else _complete(card, _read(_REFERENCES[card.kind]))
    except ValidationError as error:
        problem = error.errors()[0]
        raise ConfigError(f"{path}: {'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from None


def _complete(card: Card, reference: Card) -> Card:
    """Take what a card lacks from the reference, and scale it where it is arithmetic."""
    known, factors = card.precision_factor, reference.precision_factor
    base = known.get(card.measured_in, 1.0) / factors[card.measured_in]
    card = replace(card, precision_factor={**{key: base * factor for key, factor in factors.items()}, **known})
    own, other = (one.forward_s(*_COMPARED, card.measured_in) for one in (card, reference))
    if own is None or other is None:
        raise ValueError(f"forward_ms: {_COMPARED[0]} is missing, by which other cards are compared with it")
    rows: dict[str, _Forward] = {}
    for name, row in reference.forward_ms.items():
        seconds = reference.forward_s(name, int(row["image_size"]), card.measured_in)
        rows[name] = {"image_size": row["image_size"], card.measured_in: 1000 * (seconds or 0.0) * own / other}
    scales = {"train_factor": 1.0, "step_s": 1.0, "gmac_s": reference.slower(card.measured_in) * own / other}
    numbers = {key: getattr(reference, key) * scale for key, scale in scales.items() if not getattr(card, key)}
    return replace(card, forward_ms={**rows, **card.forward_ms}, **numbers)
