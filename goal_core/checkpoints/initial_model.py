"""What cells begin with: a framework's parts with their first weights, or with those of the checkpoint `init_from`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from goal_core.checkpoints.description import ModelDescription
from goal_core.checkpoints.file import load_module, read_checkpoint, take_prefix
from goal_core.data import Dataset
from goal_core.data.config import DataConfig
from goal_core.data.text.tokenizer import Tokenizer
from goal_core.errors import WeightsError
from goal_core.frameworks import framework_of
from goal_core.models import Heads, ImageBackbone, ModelConfig, weights_id
from goal_core.models.encoder import num_features

_PARTS = ("backbone.", "heads.")
_WORDS = ("text.embed.weight", "word_embeddings.weight")
"""Ends of the names of word embeddings, one row a word."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Given:
    """The checkpoint `init_from`."""

    path: Path
    card: ModelDescription
    backbone: dict[str, Tensor]
    """Empty where it was frozen, and is had from its own weights."""
    heads: dict[str, Tensor]


class InitialModel:
    """Builds the parts that cells train, with their first weights, and the tokenizer that goes with them.

    A checkpoint `init_from` brings its own tokenizer, for its words stand for rows of an embedding.

    Args:
        model: framework, parts and first weights.
        data: what it trains on.
        dataset: the same, open.

    Raises:
        ConfigError: the framework cannot train on this data.
        WeightsError: `init_from` is missing, damaged, or of another model; one line that says in what.
    """

    def __init__(self, model: ModelConfig, data: DataConfig, dataset: Dataset) -> None:
        self.framework = framework_of(model)
        self.framework.check(model, data)
        self._data, self._dataset = data, dataset
        self._given = _read(model) if model.init_from else None
        self.model = model if self._given is None else _built(model, self._given)
        self.tokenizer: Tokenizer
        if self._given is None:
            self.tokenizer = self.framework.tokenizer(model, dataset.vocabulary_captions, data.min_word_count)
        else:
            self.tokenizer = self._given.card.vocabulary

    @property
    def keeps_backbone(self) -> bool:
        """Whether checkpoints must hold even a frozen backbone, because its weights cannot be had anew."""
        return self.model.backbone.weights == "random"

    def backbone(self, seed: int) -> ImageBackbone | None:
        """The image backbone; None where the data holds features already."""
        backbone = self.framework.backbone(self.model, self._data, seed)
        if backbone is not None and self._given is not None and self._given.backbone:
            load_module(backbone, self._given.backbone, self._given.path)
        return backbone

    def heads(self, backbone: ImageBackbone | None, seed: int) -> Heads:
        """Everything else that trains."""
        width = num_features(backbone, self._dataset.splits["train"])
        heads = self.framework.heads(self.model, num_features=width, tokenizer=self.tokenizer, seed=seed)
        if self._given is not None:
            load_module(heads, self._given.heads, self._given.path)
        return heads


def check_initial_weights(model: ModelConfig, data: DataConfig, dataset: Dataset) -> None:
    """Load the first weights once and throw them away, so that a misfit shows before anything is scheduled.

    Raises:
        DataError: no word of the captions is in the vocabulary.
        WeightsError: they cannot be had, or do not fit.
    """
    first = InitialModel(model, data, dataset)
    if model.init_from:
        first.heads(first.backbone(0), 0)
    else:
        framework_of(model).check_weights(model, data)


def initial_weights_id(model: ModelConfig) -> str:
    """What the first weights are, for the cell id: content, never a place.

    Raises:
        WeightsError: a file is not there, or is no checkpoint.
    """
    own = framework_of(model).weights_id(model)
    return f"{own} init {init_id(model)}" if model.init_from else own


def init_id(model: ModelConfig) -> str:
    """Hash of the tensors and of the tokenizer in `init_from`, 16 hex digits; empty without `init_from`.

    Raises:
        WeightsError: the file is not there, or is no checkpoint.
    """
    if not model.init_from:
        return ""
    path = _existing(model)
    stat = path.stat()
    return _content(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=8)
def _content(path: Path, size: int, mtime_ns: int) -> str:
    digest = hashlib.sha256()
    try:
        with safe_open(path, framework="pt") as file:
            state = json.loads((file.metadata() or {}).get("state", "{}"))
            if "card" not in state:
                raise WeightsError(_no_model(path))
            digest.update(state["card"]["vocabulary"].encode())
            for name in sorted(name for name in file.keys() if name.startswith(_PARTS)):
                tensor = file.get_tensor(name)
                digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
                digest.update(tensor.numpy().tobytes())
    except (SafetensorError, OSError, json.JSONDecodeError) as error:
        raise WeightsError(f"cannot read init_from {path}: {error}") from error
    return digest.hexdigest()[:16]


def _existing(model: ModelConfig) -> Path:
    path = Path(model.init_from)
    if not path.is_file():
        raise WeightsError(f"no checkpoint at {path}, which init_from names")
    return path


def _no_model(path: Path) -> str:
    return (
        f"init_from {path} is no model: give a best.safetensors of a cell, "
        "or what `goal-sweep convert` made of a published checkpoint"
    )


def _read(model: ModelConfig) -> _Given:
    path = _existing(model)
    tensors, state = read_checkpoint(path)
    if "card" not in state:
        raise WeightsError(_no_model(path))
    given = _Given(
        path=path,
        card=ModelDescription.from_json(state["card"]),
        backbone=take_prefix("backbone", tensors),
        heads=take_prefix("heads", tensors),
    )
    problems = list(_misfits(given, model))
    if problems:
        raise WeightsError(f"init_from {path} does not fit the sweep's model: {'; '.join(problems)}")
    return given


def _misfits(given: _Given, wanted: ModelConfig) -> Iterator[str]:
    """In what the checkpoint's model is another than the sweep's; sizes that nobody states show when it is loaded."""
    had = given.card.model
    if had.framework != wanted.framework:
        yield f"it is of framework {had.framework}, not {wanted.framework}"
        return
    ours, theirs = wanted.backbone, had.backbone
    precomputed = "precomputed" in (ours.weights, theirs.weights)
    if precomputed and ours.weights != theirs.weights:
        yield f"its backbone weights are {theirs.weights}, not {ours.weights}"
    elif not precomputed and _architecture(ours.name) != _architecture(theirs.name):
        yield f"its backbone is {theirs.name}, not {ours.name}"
    elif not precomputed and not given.backbone and given.card.weights.split(" ")[0] != weights_id(ours):
        yield f"its heads were trained on backbone weights {given.card.weights.split(' ')[0]}, not {weights_id(ours)}"
    if had.embed_dim != wanted.embed_dim:
        yield f"its embed_dim is {had.embed_dim}, not {wanted.embed_dim}"
    uses = framework_of(wanted).uses
    if "text" in uses and had.text != wanted.text:
        yield f"its text.word_dim is {had.text.word_dim}, not {wanted.text.word_dim}"
    if "xvlm" in uses and had.xvlm.fusion_layer != wanted.xvlm.fusion_layer:
        yield f"its xvlm.fusion_layer is {had.xvlm.fusion_layer}, not {wanted.xvlm.fusion_layer}"
    words = next((value for name, value in given.heads.items() if name.endswith(_WORDS)), None)
    if words is not None and len(words) < len(given.card.vocabulary):
        yield f"its vocabulary has {len(given.card.vocabulary)} words, but its word embedding {len(words)} rows"
    if "bert" in uses and wanted.bert.weights == "random" and replace(had.bert, weights="random") != wanted.bert:
        yield f"its BERT has other sizes than {wanted.bert.layers} layers of width {wanted.bert.width}"


def _architecture(name: str) -> str:
    """A timm name without the tag of its weights."""
    return name.split(".")[0]


def _built(model: ModelConfig, given: _Given) -> ModelConfig:
    """The model with nothing to load that the checkpoint is about to overwrite."""
    built = replace(model, bert=given.card.model.bert)
    return replace(built, backbone=replace(built.backbone, weights="random")) if given.backbone else built
