"""What a checkpoint says of itself, so that it can be evaluated with nothing but its data at hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, get_args, get_type_hints

from goal_core.data.config import DataConfig, ImageConfig
from goal_core.data.text.tokenizer import Tokenizer, tokenizer_from_json
from goal_core.errors import WeightsError
from goal_core.models import BackboneConfig, BertConfig, GruConfig, ModelConfig, VseInftyConfig, XvlmConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDescription:
    """The description in a checkpoint's header."""

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
    """Identity of the first weights; see :meth:`goal_core.frameworks.Framework.weights_id`."""
    vocabulary: Tokenizer

    def to_json(self) -> dict[str, Any]:
        """The card as JSON."""
        return {
            "cell": self.cell,
            "stage": self.stage,
            "objective": dict(self.objective),
            "seed": self.seed,
            "precision": self.precision,
            "data": asdict(self.data),
            "data_fingerprint": self.data_fingerprint,
            "model": asdict(self.model),
            "weights": self.weights,
            "vocabulary": self.vocabulary.to_json(),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> ModelDescription:
        """Read a card.

        Raises:
            WeightsError: it lacks something, or has what this version does not know.
        """
        try:
            return cls(
                **{key: content[key] for key in ("cell", "stage", "objective", "seed", "precision")},
                data=_data(content["data"]),
                data_fingerprint=content["data_fingerprint"],
                model=_model(content["model"]),
                weights=content["weights"],
                vocabulary=tokenizer_from_json(content["vocabulary"]),
            )
        except (KeyError, TypeError) as error:
            raise WeightsError(f"the checkpoint's description is not one this version knows: {error}") from error


def moved(card: ModelDescription, *, root: str | None, weights: str | None) -> ModelDescription:
    """The card with other places for its data and its backbone's weights."""
    data, model = card.data, card.model
    if root is not None and data.root is not None:
        data = data.with_root(root)
    if weights is not None:
        model = replace(model, backbone=replace(model.backbone, weights=weights))
    return replace(card, data=data, model=model)


def _data(content: Mapping[str, Any]) -> DataConfig:
    kind: type[DataConfig] = {get_args(get_type_hints(kind)["format"])[0]: kind for kind in get_args(DataConfig)}[
        content["format"]
    ]
    image = {"image": ImageConfig(**content["image"])} if "image" in content else {}
    return kind(**{**content, **image})


def _model(content: Mapping[str, Any]) -> ModelConfig:
    kinds = {
        **{"backbone": BackboneConfig, "text": GruConfig, "bert": BertConfig},
        **{"vse_infty": VseInftyConfig, "xvlm": XvlmConfig},
    }
    return ModelConfig(**{key: kinds[key](**value) if key in kinds else value for key, value in content.items()})
