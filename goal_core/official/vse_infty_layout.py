"""The public checkpoints of VSE-infinity (``woodfrog/vse_infty``, ``model_best.pth``)."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Mapping

import torch
from torch import Tensor

from goal_core.errors import WeightsError
from goal_core.models import BackboneConfig, BertConfig, ModelConfig

RESNEXTS = {"wsl": "resnext101_32x8d.fb_wsl_ig1b_ft_in1k", "imagenet_resnext": "resnext101_32x8d.tv_in1k"}
"""Their word for a backbone and timm's. Their others have strides and padding that no backbone of timm has."""

_PREFIX = "module."
"""Every name begins with it: the encoders were saved inside of DataParallel."""

_MLP = {"mlp.first.": "mlp.layers.0.", "mlp.second.": "mlp.layers.1.", "mlp.norm.": "mlp.bns.0."}

_BERT_HEAD_WIDTH = 64
"""Of every published BERT."""

_SEQUENCES = {
    **{"conv1": "base.0", "bn1": "base.1", "layer1": "base.4", "layer2": "base.5", "layer3": "base.6"},
    "layer4": "top.0",
}
"""A ResNet's parts, and where the sequences that run hold them."""

VSE_INFTY_LEFTOVERS: Mapping[str, str] = {
    r"image\.mlp\.bns\.1\.": "a normalisation that the published code builds and never runs",
    r"image\.backbone\.resnet\.fc\.": "the backbone's classifier",
    r"image\.backbone\.resnet\.": "the backbone's tensors, registered a second time",
    r"text\.bert\.pooler\.": "BERT's pooler, which nothing reads",
    r"text\.bert\.embeddings\.position_ids$": "0, 1, 2, ..., which today's transformers counts by itself",
}
"""What the published files hold beyond the model, with the reason."""


def without_prefix(tensors: Mapping[str, Tensor], part: str, source: str) -> dict[str, Tensor]:
    """One encoder's tensors under ``part`` and their names in the published code.

    Raises:
        WeightsError: names lack the prefix that published files have.
    """
    bare = [name for name in tensors if not name.startswith(_PREFIX)]
    if bare:
        raise WeightsError(
            f"{source} is no VSE-infinity checkpoint: {len(bare)} names lack the prefix {_PREFIX} ({bare[0]}, ...)"
        )
    return {part + name.removeprefix(_PREFIX): tensor for name, tensor in tensors.items()}


def vse_infty_model(options: Namespace, tensors: Mapping[str, Tensor], source: str) -> ModelConfig:
    """The model in a file, sizes as its tensors have them.

    Args:
        options: of the training.
        tensors: of both encoders, as from :func:`without_prefix`.
        source: the file, for messages.

    Raises:
        WeightsError: it is a variant that this framework does not have.
    """
    for name in ("no_imgnorm", "no_txtnorm"):
        if getattr(options, name, False):
            raise WeightsError(f"{source} was trained with {name}; only normalised embeddings can be converted")
    kind = getattr(options, "precomp_enc_type", None)
    if kind not in ("basic", "backbone"):
        raise WeightsError(f"{source} has precomp_enc_type = {kind!r}; convertible are 'basic' and 'backbone'")
    if kind == "basic":
        backbone, projection = BackboneConfig(name="butd_region", weights="precomputed"), "image.fc.weight"
    else:
        origin = getattr(options, "backbone_source", None)
        if origin not in RESNEXTS:
            raise WeightsError(f"{source} has the backbone {origin!r}; convertible are {', '.join(RESNEXTS)}")
        backbone = BackboneConfig(name=RESNEXTS[origin], weights="random")
        projection = "image.image_encoder.fc.weight"
    words = "text.bert.embeddings.word_embeddings.weight"
    lacking = [name for name in (projection, words) if name not in tensors]
    if lacking:
        raise WeightsError(f"{source} is no VSE-infinity checkpoint: it lacks {' and '.join(lacking)}")
    width = tensors[words].shape[1]
    numbers = [int(found[1]) for name in tensors if (found := re.match(r"text\.bert\.encoder\.layer\.(\d+)\.", name))]
    return ModelConfig(
        framework="vse_infty",
        backbone=backbone,
        embed_dim=tensors[projection].shape[0],
        bert=BertConfig(
            weights="random",
            layers=max(numbers, default=0) + 1,
            width=width,
            heads=max(1, width // _BERT_HEAD_WIDTH),
        ),
    )


def vse_infty_name(name: str, *, regions: bool) -> str:
    """The published name of one of our tensors.

    Args:
        name: ours, `heads.*` or `backbone.net.*`.
        regions: whether the images are precomputed regions.
    """
    part, _, rest = name.partition(".")
    if part == "backbone":
        first, _, deeper = rest.removeprefix("net.").partition(".")
        return f"image.backbone.{_SEQUENCES.get(first, first)}.{deeper}"
    side, _, rest = rest.partition(".")
    rest = rest.replace("pool.rnn.", "gpool.gru.").replace("pool.score.", "gpool.linear.")
    if side == "text":
        return f"text.{rest.replace('fc.', 'linear.', 1) if rest.startswith('fc.') else rest}"
    for ours, theirs in _MLP.items():
        rest = rest.replace(ours, theirs)
    return f"image.{rest}" if regions else f"image.image_encoder.{rest}"


def check_second_registration(tensors: Mapping[str, Tensor], source: str) -> None:
    """Check that the two names of each of a backbone's tensors hold the same numbers.

    Raises:
        WeightsError: they differ, and the file does not say which of them the model is.
    """
    for name, tensor in tensors.items():
        first, _, deeper = name.removeprefix("image.backbone.resnet.").partition(".")
        twin = f"image.backbone.{_SEQUENCES.get(first, '')}.{deeper}"
        if name.startswith("image.backbone.resnet.") and twin in tensors and not torch.equal(tensor, tensors[twin]):
            raise WeightsError(f"{source} holds two different tensors for one: {name} and {twin}")
