"""The description of a model in its checkpoint, so that evaluating it needs nothing else but the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from torch import Tensor

from goal_sweep.goal_core.basics.errors import WeightsError
from goal_sweep.goal_core.checkpoints.file import TRAINING, read_checkpoint, take_prefix, write_checkpoint
from goal_sweep.goal_core.checkpoints.names import weights_in
from goal_sweep.goal_core.data import DataConfig
from goal_sweep.goal_core.data.text import Tokenizer
from goal_sweep.goal_core.data.text.wordpieces import tokenizer_from_json
from goal_sweep.goal_core.models import ModelConfig

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
        parts = {"data": _data(own["data"]), "model": _settings(ModelConfig, own["model"])}
        return cls(**{**own, **parts, "vocabulary": tokenizer_from_json(own["vocabulary"])})

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
    return TrainedModel(
        path=path,
        description=description,
        epoch=epoch,
        heads=take_prefix("heads", tensors),
        backbone=take_prefix("backbone", tensors),
    )


def _data(content: Mapping[str, Any]) -> DataConfig:
    kinds: dict[str, type[DataConfig]] = {
        get_args(get_type_hints(kind)["format"])[0]: kind for kind in get_args(DataConfig)
    }
    return _settings(kinds[content["format"]], content)


def _settings(kind: type[T], content: Mapping[str, Any]) -> T:
    """The settings that `asdict` turned into a mapping, with those inside them."""
    types = get_type_hints(kind)
    return kind(
        **{
            name: _settings(types[name], value) if is_dataclass(types.get(name)) else value
            for name, value in content.items()
        }
    )
