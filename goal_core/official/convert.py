"""A published checkpoint into one of ours, which describes itself and can be evaluated like any trained cell."""

from __future__ import annotations

import hashlib
from argparse import Namespace
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from goal_core.checkpoints.description import ModelDescription
from goal_core.checkpoints.file import with_prefix, write_checkpoint
from goal_core.data.config import DataConfig
from goal_core.data.text import CleanedWordpieces, Tokenizer, Vocabulary, Wordpieces
from goal_core.errors import WeightsError
from goal_core.frameworks import framework_of
from goal_core.models import BackboneConfig, GruConfig, ModelConfig, build_backbone
from goal_core.objectives import ObjectiveConfig
from goal_core.official.pickles import read_torch_file, tensors_of
from goal_core.official.position_bias import resized_tables
from goal_core.official.renaming import Renamed, rename_tensors
from goal_core.official.vse_infty_layout import (
    VSE_INFTY_LEFTOVERS,
    check_second_registration,
    vse_infty_model,
    vse_infty_name,
    without_prefix,
)
from goal_core.official.vsepp_layout import VSEPP_LEFTOVERS, vsepp_name, vsepp_settings
from goal_core.official.xvlm_layout import XVLM_LEFTOVERS, without_wrapper, xvlm_model, xvlm_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Official:
    """A published model under our names."""

    model: ModelConfig
    vocabulary: Tokenizer
    renamed: Renamed
    """`heads.*` and `backbone.net.*`."""
    epoch: int
    """Epoch of its training that the file holds."""
    digest: str
    """`sha256:` and 16 hex digits of the published file."""


def read_vsepp(path: Path, vocabulary: Vocabulary, *, image_size: int = 224) -> Official:
    """Read a public VSE++ checkpoint with a ResNet.

    Args:
        path: ``model_best.pth.tar``.
        vocabulary: the one it was trained with; its order is that of the word embedding's rows.
        image_size: side of the images it will see, pixels.

    Raises:
        WeightsError: the file is refused, is not of the layout, is of another variant, or has another vocabulary.
    """
    stored, image, text, options = _read_parts(path, "VSE++")
    for name in ("fc.weight", "fc.bias"):
        if name not in image:
            raise WeightsError(f"{path} is no VSE++ checkpoint: its image encoder lacks {name}")
    if "embed.weight" not in text:
        raise WeightsError(f"{path} is no VSE++ checkpoint: its text encoder lacks embed.weight")
    given = {**image, **text}
    settings = vsepp_settings(options, given, str(path))
    if len(vocabulary) != len(given["embed.weight"]):
        raise WeightsError(
            f"the word embedding of {path} has {len(given['embed.weight'])} rows, "
            f"but the vocabulary has {len(vocabulary)} words: it is not the one this model was trained with"
        )
    model = ModelConfig(
        backbone=BackboneConfig(name=settings["backbone"], weights="random"),
        text=GruConfig(word_dim=settings["word_dim"]),
        embed_dim=settings["embed_dim"],
    )
    own = _shapes(model, vocabulary, image_size=image_size)
    renamed = rename_tensors(own, given, vsepp_name, known_leftovers=VSEPP_LEFTOVERS, source=str(path))
    return _official(path, stored, model, vocabulary, renamed)


def read_vse_infty(path: Path, wordpieces: Wordpieces, *, image_size: int = 512) -> Official:
    """Read a public VSE-infinity checkpoint: of precomputed regions, or of the cells of a ResNeXt.

    Args:
        path: ``model_best.pth``.
        wordpieces: those of the BERT that it was trained with; for the published files, `bert-base-uncased`'s.
        image_size: side of the images it will see, pixels; counts for cells only.

    Raises:
        WeightsError: the file is refused, is not of the layout, is of another variant, or has another vocabulary.
    """
    stored, image, text, options = _read_parts(path, "VSE-infinity")
    given = without_prefix(image, "image.", str(path)) | without_prefix(text, "text.", str(path))
    model = vse_infty_model(options, given, str(path))
    rows = len(given["text.bert.embeddings.word_embeddings.weight"])
    if len(wordpieces) != rows:
        raise WeightsError(
            f"the word embedding of {path} has {rows} rows, but the vocabulary has {len(wordpieces)} word pieces: "
            "it is not the one this model was trained with"
        )
    regions = model.backbone.weights == "precomputed"
    width = given["image.fc.weight"].shape[1] if regions else 0
    own = _shapes(model, wordpieces, image_size=image_size, region_width=width)
    official_name = partial(vse_infty_name, regions=regions)
    renamed = rename_tensors(own, given, official_name, known_leftovers=VSE_INFTY_LEFTOVERS, source=str(path))
    check_second_registration(given, str(path))
    return _official(path, stored, model, wordpieces, renamed)


def read_xvlm(path: Path, wordpieces: Wordpieces, *, image_size: int = 384) -> Official:
    """Read a public X-VLM checkpoint with a Swin: pre-trained, or fine-tuned for retrieval.

    Args:
        path: the ``.th`` file.
        wordpieces: of `bert-base-uncased`.
        image_size: side of the images it will see, pixels; biases of relative positions are resized for its windows.

    Raises:
        WeightsError: the file is refused, is not of the layout, is of another variant, or has another vocabulary.
    """
    stored = read_torch_file(path)
    given = without_wrapper(tensors_of(stored.get("model"), f"{path}: model"))
    model = xvlm_model(given, str(path))
    rows = len(given["text_encoder.embeddings.word_embeddings.weight"])
    if len(wordpieces) != rows:
        raise WeightsError(
            f"the word embedding of {path} has {rows} rows, but the vocabulary has {len(wordpieces)} word pieces: "
            "it is not the one this model was trained with"
        )
    vocabulary = CleanedWordpieces(wordpieces=wordpieces)
    own = _shapes(model, vocabulary, image_size=image_size)
    official_name = partial(xvlm_name, fusion_layer=model.xvlm.fusion_layer)
    given = resized_tables(given, {official_name(name): tensor for name, tensor in own.items()})
    renamed = rename_tensors(own, given, official_name, known_leftovers=XVLM_LEFTOVERS, source=str(path))
    return _official(path, stored, model, vocabulary, renamed)


def write_official(official: Official, path: Path, *, data: DataConfig, data_fingerprint: str) -> None:
    """Write a published model as a checkpoint of ours.

    Args:
        official: the model.
        path: the ``.safetensors`` file; it appears whole or not at all.
        data: what it is evaluated on.
        data_fingerprint: of that data.
    """
    card = ModelDescription(
        cell="published",
        stage="published",
        objective=ObjectiveConfig(pair="con", triplet="con").resolved(),
        seed=0,
        precision="fp32",
        data=data,
        data_fingerprint=data_fingerprint,
        model=official.model,
        weights=official.digest,
        vocabulary=official.vocabulary,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    try:
        write_checkpoint(temporary, official.renamed.tensors, {"epoch": official.epoch, "card": card.to_json()})
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _read_parts(path: Path, system: str) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, Tensor], Namespace]:
    """What both systems save: everything, the image and the text encoder's tensors, and the training options."""
    stored = read_torch_file(path)
    parts, options = stored.get("model"), stored.get("opt")
    if not isinstance(parts, list) or len(parts) != 2 or not isinstance(options, Namespace):
        raise WeightsError(
            f"{path} is no {system} checkpoint: it must hold `opt` and `model`, a list of two state dicts"
        )
    image, text = (tensors_of(part, f"{path}: model[{index}]") for index, part in enumerate(parts))
    return stored, image, text, options


def _official(
    path: Path, stored: dict[str, Any], model: ModelConfig, vocabulary: Tokenizer, renamed: Renamed
) -> Official:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    epoch = stored.get("epoch", 0)
    if not isinstance(epoch, int):
        raise WeightsError(f"{path}: `epoch` must be a whole number, got {epoch!r}")
    return Official(model=model, vocabulary=vocabulary, renamed=renamed, epoch=epoch, digest=f"sha256:{digest[:16]}")


def _shapes(model: ModelConfig, tokenizer: Tokenizer, *, image_size: int, region_width: int = 0) -> dict[str, Tensor]:
    """Our model's state dict on the meta device: names and shapes without memory."""
    own: dict[str, Tensor] = {}
    with torch.device("meta"):
        if not region_width:
            backbone = build_backbone(model.backbone, image_size=image_size, seed=0, cells=model.framework != "vsepp")
            own |= with_prefix("backbone", backbone.state_dict())
        width = region_width or backbone.num_features
        heads = framework_of(model).heads(model, num_features=width, tokenizer=tokenizer, seed=0)
    return own | with_prefix("heads", heads.state_dict())
