"""Convert a published checkpoint into a goal-sweep checkpoint, which is evaluated like any trained cell."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from goal_core.basics.atomic import replace_with
from goal_core.basics.errors import WeightsError
from goal_core.checkpoints import ModelDescription, with_prefix, write_model
from goal_core.data import DataConfig
from goal_core.data.text import Tokenizer, Vocabulary, Wordpieces
from goal_core.models import FrameworkName, ModelConfig, build_backbone, file_sha256
from goal_core.models.frameworks import framework_of
from goal_core.objectives import ObjectiveConfig
from goal_core.official.layouts import (
    VSE_INFTY_LEFTOVERS,
    XVLM_LEFTOVERS,
    check_second_registration,
    vse_infty_model,
    vse_infty_name,
    vsepp_model,
    vsepp_name,
    without_prefix,
    without_wrapper,
    xvlm_model,
    xvlm_name,
)
from goal_core.official.pickles import read_torch_file, read_vocabulary, tensors_of
from goal_core.official.tensors import Renamed, rename_tensors, resized_tables


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedCheckpoint:
    """The model in a published checkpoint, its tensors renamed to ours."""

    model: ModelConfig
    vocabulary: Tokenizer
    renamed: Renamed
    """`heads.*` and `backbone.net.*`."""
    epoch: int
    """The epoch of its training after which the file was written."""
    digest: str
    """`sha256:` and 16 hex digits of the file."""


def read_vsepp(path: Path, vocabulary: Vocabulary, *, image_size: int = 224) -> PublishedCheckpoint:
    """Read a published VSE++ checkpoint with a ResNet.

    Args:
        path: ``model_best.pth.tar``.
        vocabulary: the one it was trained with; its order is that of the word embedding's rows.
        image_size: side of the images it will see, pixels.

    Raises:
        WeightsError: the file is refused, its layout or variant is not supported, or the vocabulary is not its own.
    """
    stored, image, text, options = _read_parts(path, "VSE++")
    given = {**image, **text}
    model = vsepp_model(options, given, str(path))
    _check_vocabulary(vocabulary, given["embed.weight"], path, "words")
    shapes = _shapes(model, vocabulary, image_size=image_size)
    renamed = rename_tensors(shapes, given, vsepp_name, known_leftovers={}, source=str(path))
    return _published(path, stored, model, vocabulary, renamed)


def read_vse_infty(path: Path, wordpieces: Wordpieces, *, image_size: int = 512) -> PublishedCheckpoint:
    """Read a published VSE-infinity checkpoint: of precomputed regions, or of the cells of a ResNeXt.

    Args:
        path: ``model_best.pth``.
        wordpieces: those of the BERT that it was trained with; for the published files, `bert-base-uncased`'s.
        image_size: side of the images it will see, pixels; used for cells only.

    Raises:
        WeightsError: the file is refused, its layout or variant is not supported, or the vocabulary is not its own.
    """
    stored, image, text, options = _read_parts(path, "VSE-infinity")
    given = without_prefix(image, "image.", str(path)) | without_prefix(text, "text.", str(path))
    model = vse_infty_model(options, given, str(path))
    _check_vocabulary(wordpieces, given["text.bert.embeddings.word_embeddings.weight"], path, "word pieces")
    regions = model.backbone.weights == "precomputed"
    width = given["image.fc.weight"].shape[1] if regions else 0
    shapes = _shapes(model, wordpieces, image_size=image_size, region_width=width)
    published_name = partial(vse_infty_name, regions=regions)
    renamed = rename_tensors(shapes, given, published_name, known_leftovers=VSE_INFTY_LEFTOVERS, source=str(path))
    check_second_registration(given, str(path))
    return _published(path, stored, model, wordpieces, renamed)


def read_xvlm(path: Path, wordpieces: Wordpieces, *, image_size: int = 384) -> PublishedCheckpoint:
    """Read a published X-VLM checkpoint with a Swin: pre-trained, or fine-tuned for retrieval.

    Args:
        path: the ``.th`` file.
        wordpieces: of `bert-base-uncased`.
        image_size: side of the images it will see, pixels; biases of relative positions are resized for its windows.

    Raises:
        WeightsError: the file is refused, its layout or variant is not supported, or the vocabulary is not its own.
    """
    stored = read_torch_file(path)
    given = without_wrapper(tensors_of(stored.get("model"), f"{path}: model"))
    model = xvlm_model(given, str(path))
    _check_vocabulary(wordpieces, given["text_encoder.embeddings.word_embeddings.weight"], path, "word pieces")
    vocabulary = replace(wordpieces, cleans=True)
    shapes = _shapes(model, vocabulary, image_size=image_size)
    published_name = partial(xvlm_name, fusion_layer=model.xvlm.fusion_layer)
    given = resized_tables(given, {published_name(name): tensor for name, tensor in shapes.items()})
    renamed = rename_tensors(shapes, given, published_name, known_leftovers=XVLM_LEFTOVERS, source=str(path))
    return _published(path, stored, model, vocabulary, renamed)


def read_published(
    framework: FrameworkName, path: Path, vocabulary: Path, *, image_size: int | None = None
) -> PublishedCheckpoint:
    """Read a published checkpoint of a framework.

    Args:
        framework: the framework of the model.
        path: the checkpoint.
        vocabulary: the vocabulary of its training: VSE++'s pickle or JSON file, or BERT's `vocab.txt`.
        image_size: side of the images it will see, pixels; None for that of its training.

    Raises:
        WeightsError: as :func:`read_vsepp`, :func:`read_vse_infty` and :func:`read_xvlm`.
        DataError: the vocabulary cannot be read.
    """
    size = {} if image_size is None else {"image_size": image_size}
    if framework == "vsepp":
        return read_vsepp(path, read_vocabulary(vocabulary), **size)
    read = {"vse_infty": read_vse_infty, "xvlm": read_xvlm}[framework]
    return read(path, Wordpieces.from_file(vocabulary), **size)


def write_published(published: PublishedCheckpoint, path: Path, *, data: DataConfig, data_fingerprint: str) -> None:
    """Write the model of a published checkpoint as a goal-sweep checkpoint.

    Args:
        published: the checkpoint.
        path: the ``.safetensors`` file; it appears whole or not at all.
        data: the data it is to be evaluated on.
        data_fingerprint: of that data.

    Raises:
        StorageError: the file cannot be written.
    """
    description = ModelDescription(
        cell="published",
        stage="published",
        objective=ObjectiveConfig(pair="con", triplet="con").resolved(),
        seed=0,
        precision="fp32",
        data=data,
        data_fingerprint=data_fingerprint,
        model=published.model,
        weights=published.digest,
        vocabulary=published.vocabulary,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = published.renamed.tensors
    replace_with(path, lambda temporary: write_model(temporary, tensors, description, epoch=published.epoch))


def _read_parts(path: Path, system: str) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, Tensor], Namespace]:
    """Read a file of VSE++ or VSE-infinity: all of it, the image encoder's tensors, the text encoder's, the options."""
    stored = read_torch_file(path)
    parts, options = stored.get("model"), stored.get("opt")
    if not isinstance(parts, list) or len(parts) != 2 or not isinstance(options, Namespace):
        raise WeightsError(
            f"{path} is not a checkpoint of {system}: it must contain `opt` and `model`, a list of two state dicts"
        )
    image, text = (tensors_of(part, f"{path}: model[{index}]") for index, part in enumerate(parts))
    return stored, image, text, options


def _check_vocabulary(vocabulary: Tokenizer, embedding: Tensor, path: Path, words: str) -> None:
    if len(vocabulary) != len(embedding):
        raise WeightsError(
            f"the word embedding of {path} has {len(embedding)} rows, but the vocabulary has {len(vocabulary)} "
            f"{words}: it is not the one this model was trained with"
        )


def _shapes(model: ModelConfig, tokenizer: Tokenizer, *, image_size: int, region_width: int = 0) -> dict[str, Tensor]:
    """Our model's state dict on the meta device: names and shapes without memory."""
    shapes: dict[str, Tensor] = {}
    with torch.device("meta"):
        if not region_width:
            # Pooling the cells or not changes no tensor of the backbone.
            backbone = build_backbone(model.backbone, image_size=image_size, seed=0, cells=True)
            shapes |= with_prefix("backbone", backbone.state_dict())
        width = region_width or backbone.num_features
        heads = framework_of(model).heads(model, num_features=width, tokenizer=tokenizer, seed=0)
    return shapes | with_prefix("heads", heads.state_dict())


def _published(
    path: Path, stored: dict[str, Any], model: ModelConfig, vocabulary: Tokenizer, renamed: Renamed
) -> PublishedCheckpoint:
    epoch = stored.get("epoch", 0)
    if not isinstance(epoch, int):
        raise WeightsError(f"{path}: `epoch` must be a whole number, got {epoch!r}")
    return PublishedCheckpoint(
        model=model, vocabulary=vocabulary, renamed=renamed, epoch=epoch, digest=f"sha256:{file_sha256(path)[:16]}"
    )
