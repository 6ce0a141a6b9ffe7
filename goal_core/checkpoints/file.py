"""One safetensors file: tensors by name, everything else as JSON in its header, such as the description of a model.

A training's state is one file because a file is replaced as a whole: weights, optimiser, random streams, position and
history always belong to the same moment. The header has a checksum of all of it, which every reader verifies. With the
description that a model has in its checkpoint, evaluating it needs nothing else but the data.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar, get_type_hints

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save_file
from torch import Tensor, nn

from goal_sweep.goal_core.basics.atomic import DamagedError, read_bytes, usual_mode
from goal_sweep.goal_core.basics.errors import WeightsError
from goal_sweep.goal_core.checkpoints.names import weights_in
from goal_sweep.goal_core.data import DataConfig
from goal_sweep.goal_core.data.config import FORMATS
from goal_sweep.goal_core.data.text import Tokenizer, tokenizer_from_json
from goal_sweep.goal_core.models import ModelConfig
from goal_sweep.goal_core.models.weights import misfits

_STATE, _CHECKSUM = "state", "checksum"
TRAINING: Final = "training"
"""The state's entry with the key of the training that a checkpoint belongs to."""


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Write tensors and a JSON-able state to a file. Not atomic: the caller puts the file in place."""
    contiguous, places = dict[str, Tensor](), set[int]()
    for name, tensor in tensors.items():
        own = tensor.detach().cpu().contiguous()
        place = own.untyped_storage().data_ptr()
        contiguous[name] = own.clone() if place in places else own  # a copy for each name of tied weights, as T5 has
        places.add(place)
    sealed = json.dumps({**state, _CHECKSUM: _checksum(contiguous, state)}, sort_keys=True)
    # One entry only: safetensors writes several in no fixed order, and equal checkpoints are equal files.
    with usual_mode(path):
        save_file(contiguous, path, metadata={_STATE: sealed})


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read and verify what :func:`write_checkpoint` wrote. Nothing is unpickled.

    A missing file, or one that goal-sweep did not write, is a `WeightsError`; other damage is a `DamagedError`.
    """
    content = read_bytes(path)
    if content is None:
        raise WeightsError(f"there is no checkpoint {path}")
    try:
        tensors = load(content)
        metadata = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")]).get("__metadata__", {})
        state: dict[str, Any] = dict(json.loads(metadata.get(_STATE, "{}")))
    except (SafetensorError, TypeError, ValueError) as error:
        raise DamagedError(f"checkpoint {path} is damaged: {error}") from error
    if not state:
        raise WeightsError(f"{path} is not a goal-sweep checkpoint: its header has no state")
    if state.pop(_CHECKSUM, None) != _checksum(tensors, state):
        raise DamagedError(f"{path} is damaged: its content does not match its checksum")
    return tensors, state


def read_of_training(path: Path, training: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """As :func:`read_checkpoint`, of a training; a `DamagedError` where it is missing or belongs to another, too."""
    try:
        tensors, state = read_checkpoint(path)
    except WeightsError as error:
        raise DamagedError(str(error)) from error
    if state.get(TRAINING) != training:
        raise DamagedError(f"{path} belongs to another training ({state.get(TRAINING)}, not {training})")
    return tensors, state


def _checksum(tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> str:
    """SHA-256, in hex, of the tensors with their names, types and shapes, and of the state."""
    digest = hashlib.sha256(json.dumps(state, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def flat(parts: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The tensors of several parts, each under ``part.name``."""
    return {f"{part}.{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}


def take_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names start with ``prefix.``, without it."""
    start = f"{prefix}."
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}


def check_fits(module: nn.Module, tensors: Mapping[str, Tensor], source: Path) -> None:
    """Check that tensors are those of a module, all of them and no others; else a `WeightsError`."""
    if problems := misfits(module.state_dict(), tensors, spare=lambda name: False):
        raise WeightsError(f"checkpoint {source} does not fit the model; tensors {problems}")


def load_module(module: nn.Module, tensors: Mapping[str, Tensor], source: Path) -> None:
    """Load a module's tensors; errors as for :func:`check_fits`."""
    check_fits(module, tensors, source)
    module.load_state_dict(dict(tensors))


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's per-parameter state, as ``<parameter number>.<name>``."""
    state = optimizer.state_dict()["state"]
    return {f"{index}.{name}": value for index, slots in state.items() for name, value in slots.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what :func:`optimizer_tensors` gave; hyper-parameters stay as the optimiser was built."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        index, slot = name.split(".", 1)
        state.setdefault(int(index), {})[slot] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    for parameter, slots in optimizer.state.items():
        for slot, value in slots.items():
            # Fused optimisers read weights and state in the order in which they lie in memory; files know one order.
            if value.shape == parameter.shape and value.stride() != parameter.stride():
                slots[slot] = torch.empty_like(parameter).copy_(value)


T = TypeVar("T")

_KEY = "card"
"""Of the description in the header's JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDescription:
    """The description of a model in its checkpoint's header."""

    cell: str
    stage: str
    objective: Mapping[str, Any]
    """Both names and every parameter."""
    seed: int
    precision: str
    data: DataConfig
    data_fingerprint: str
    model: ModelConfig
    weights: str
    """Identity of the initial weights; see :meth:`goal_core.models.frameworks.Framework.weights_id`."""
    vocabulary: Tokenizer
    num_features: int
    """Width of the precomputed features that it takes; 0 where it takes pictures."""

    def to_json(self) -> dict[str, Any]:
        """The description as JSON; its keys are the names of the fields."""
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        parts = {"data": asdict(self.data), "model": asdict(self.model), "vocabulary": self.vocabulary.to_json()}
        return {**content, **parts}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> ModelDescription:
        """Read what :meth:`to_json` gave; any error says that something is missing, or unknown to this version."""
        own = {field.name: content[field.name] for field in fields(cls)}
        data = _settings(FORMATS[own["data"]["format"]], own["data"])
        parts = {"data": data, "model": _settings(ModelConfig, own["model"])}
        return cls(**{**own, **parts, "vocabulary": tokenizer_from_json(own["vocabulary"])})

    def without_paths(self) -> ModelDescription:
        """The description with the last part alone of each absolute path in it, for people who have other machines."""
        content = self.to_json()
        return self.from_json({**content, **{part: _without_paths(content[part]) for part in ("data", "model")}})

    def moved(self, *, root: str | None, weights: str | None) -> ModelDescription:
        """The description with another folder for the data or another file for the backbone's weights."""
        data, model = self.data, self.model
        if root is not None and data.root is not None:
            data = replace(data, root=root)
        if weights is not None:
            model = replace(model, backbone=replace(model.backbone, weights=weights))
        return replace(self, data=data, model=model)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainedModel:
    """A model read from its checkpoint."""

    path: Path
    description: ModelDescription
    epoch: int
    """The epoch whose weights these are."""
    heads: dict[str, Tensor]
    backbone: dict[str, Tensor]
    """Empty where the backbone stayed frozen and its weights are elsewhere."""


def write_model(
    path: Path, tensors: Mapping[str, Tensor], description: ModelDescription, *, epoch: int, training: str = ""
) -> None:
    """Write a model's `heads.*` and `backbone.*` tensors with its description. Not atomic."""
    state = {"epoch": epoch, _KEY: description.to_json()}
    write_checkpoint(path, tensors, state | ({TRAINING: training} if training else {}))


def read_model(path: Path) -> TrainedModel:
    """Read a model from a checkpoint, or from the folder of a finished training; a `WeightsError` where it is none."""
    path = weights_in(path) if path.is_dir() else path
    tensors, state = read_checkpoint(path)
    if _KEY not in state:
        raise WeightsError(f"{path} is not a model checkpoint; give a best-*.safetensors or a converted one")
    try:
        description, epoch = ModelDescription.from_json(state[_KEY]), int(state["epoch"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightsError(f"{path} does not describe a model that this version knows: {error}") from error
    heads, backbone = (take_prefix(part, tensors) for part in ("heads", "backbone"))
    return TrainedModel(path=path, description=description, epoch=epoch, heads=heads, backbone=backbone)


def _without_paths(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_paths(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_without_paths, value))
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def _settings(kind: type[T], content: Mapping[str, Any]) -> T:
    """The settings that `asdict` turned into a mapping, with those inside them."""
    types = get_type_hints(kind)
    parts = {name: _settings(types[name], own) for name, own in content.items() if is_dataclass(types.get(name))}
    return kind(**{**content, **parts})
