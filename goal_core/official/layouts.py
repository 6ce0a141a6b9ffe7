"""The layouts of the published checkpoints: the model in a file, and the names it gives the model's tensors.

VSE++: ``fartashf/vsepp``, ``model_best.pth.tar``. VSE-infinity: ``woodfrog/vse_infty``, ``model_best.pth``.
X-VLM: ``zengyan-97/X-VLM``, ``.th``, pre-trained or fine-tuned for retrieval.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from goal_core.basics.errors import WeightsError
from goal_core.models import BackboneConfig, BertConfig, GruConfig, ModelConfig, XvlmConfig

RESNETS = {f"resnet{depth}": f"resnet{depth}.tv_in1k" for depth in (18, 34, 50, 101, 152)}
"""VSE++'s name of a backbone, and timm's; training started from torchvision's first weights."""

RESNEXTS = {"wsl": "resnext101_32x8d.fb_wsl_ig1b_ft_in1k", "imagenet_resnext": "resnext101_32x8d.tv_in1k"}
"""VSE-infinity's name of a backbone, and timm's. Its others have strides and padding that no timm backbone has."""

SWINS = {128: "swin_base_patch4_window12_384"}
"""timm's name of X-VLM's Swin, by the width of its first stage."""

_MODULE = "module."
"""Prefix of every name in VSE-infinity's files: the encoders were saved inside DataParallel."""

_MLP = {"mlp.first.": "mlp.layers.0.", "mlp.second.": "mlp.layers.1.", "mlp.norm.": "mlp.bns.0."}

_SEQUENCES = {
    **{"conv1": "base.0", "bn1": "base.1", "layer1": "base.4", "layer2": "base.5", "layer3": "base.6"},
    "layer4": "top.0",
}
"""The parts of a ResNet, and their names in the two sequences that VSE-infinity's code runs."""

_BERT_HEAD_WIDTH = 64
"""Width of an attention head in every published BERT."""

_LAYER = re.compile(r"text_encoder\.encoder\.layer\.(\d+)\.(crossattention\.)?")

VSE_INFTY_LEFTOVERS: Mapping[str, str] = {
    r"image\.mlp\.bns\.1\.": "a normalisation that the published code builds and never runs",
    r"image\.backbone\.resnet\.fc\.": "the backbone's classifier",
    r"image\.backbone\.resnet\.": "the backbone's tensors, registered a second time",
    r"text\.bert\.pooler\.": "BERT's pooler, which nothing reads",
    r"text\.bert\.embeddings\.position_ids$": "0, 1, 2, ..., which today's transformers computes itself",
}
"""Tensors of VSE-infinity's files that the model does not use, with the reason. VSE++'s files have none."""

XVLM_LEFTOVERS: Mapping[str, str] = {
    r"vision_encoder\..*\.(relative_position_index|attn_mask)$": "computed anew for the size of the windows",
    r"text_encoder\.cls\.": "the head that predicts masked words",
    r"bbox_head\.": "the head that predicts boxes",
    r"text_encoder\.embeddings\.position_ids$": "0, 1, 2, ..., which today's transformers computes itself",
}
"""Tensors of X-VLM's files that the model does not use, with the reason."""


def vsepp_model(options: Namespace, tensors: Mapping[str, Tensor], source: str) -> ModelConfig:
    """The model in a VSE++ file.

    Args:
        options: of its training.
        tensors: of both encoders.
        source: the file, for messages.

    Raises:
        WeightsError: it is not such a checkpoint, or its variant is not supported.
    """
    _check_present(("fc.weight", "fc.bias", "embed.weight"), tensors, source, "VSE++")
    if not any(name.startswith("cnn.") for name in tensors):
        raise WeightsError(f"{source} is a VSE++ model of precomputed features: it has no image network to convert")
    cnn = getattr(options, "cnn_type", None)
    if cnn not in RESNETS:
        raise WeightsError(f"{source} has the image network {cnn!r}; only {', '.join(RESNETS)} can be converted")
    for name, usual in (("use_abs", False), ("no_imgnorm", False), ("measure", "cosine"), ("num_layers", 1)):
        value = getattr(options, name, usual)
        if value != usual:
            raise WeightsError(f"{source} was trained with {name} = {value!r}; only {usual!r} can be converted")
    return ModelConfig(
        backbone=BackboneConfig(name=RESNETS[cnn], weights="random"),
        text=GruConfig(word_dim=tensors["embed.weight"].shape[1]),
        embed_dim=len(tensors["fc.weight"]),
    )


def vsepp_name(name: str) -> str:
    """The published name of one of our tensors; those of the image and the text encoder are distinct."""
    part, _, rest = name.partition(".")
    if part == "backbone":
        return f"cnn.module.{rest.removeprefix('net.')}"
    return rest.removeprefix("image.").removeprefix("text.")


def without_prefix(tensors: Mapping[str, Tensor], part: str, source: str) -> dict[str, Tensor]:
    """One encoder's tensors of a VSE-infinity file, as ``part`` and their names in the published code.

    Raises:
        WeightsError: names lack the prefix that published checkpoints have.
    """
    bare = [name for name in tensors if not name.startswith(_MODULE)]
    if bare:
        raise WeightsError(
            f"{source} is not a checkpoint of VSE-infinity: {len(bare)} names lack the prefix {_MODULE} "
            f"({bare[0]}, ...)"
        )
    return {part + name.removeprefix(_MODULE): tensor for name, tensor in tensors.items()}


def vse_infty_model(options: Namespace, tensors: Mapping[str, Tensor], source: str) -> ModelConfig:
    """The model in a VSE-infinity file; its sizes are those of the tensors.

    Args:
        options: of its training.
        tensors: of both encoders, as from :func:`without_prefix`.
        source: the file, for messages.

    Raises:
        WeightsError: it is not such a checkpoint, or its variant is not supported.
    """
    for name in ("no_imgnorm", "no_txtnorm"):
        if getattr(options, name, False):
            raise WeightsError(f"{source} was trained with {name}; only normalised embeddings can be converted")
    kind = getattr(options, "precomp_enc_type", None)
    if kind not in ("basic", "backbone"):
        raise WeightsError(f"{source} has precomp_enc_type = {kind!r}; only 'basic' and 'backbone' can be converted")
    if kind == "basic":
        backbone, projection = BackboneConfig(name="butd_region", weights="precomputed"), "image.fc.weight"
    else:
        origin = getattr(options, "backbone_source", None)
        if origin not in RESNEXTS:
            raise WeightsError(f"{source} has the backbone {origin!r}; only {', '.join(RESNEXTS)} can be converted")
        backbone = BackboneConfig(name=RESNEXTS[origin], weights="random")
        projection = "image.image_encoder.fc.weight"
    words = "text.bert.embeddings.word_embeddings.weight"
    _check_present((projection, words), tensors, source, "VSE-infinity")
    layers = [int(match[1]) for name in tensors if (match := re.match(r"text\.bert\.encoder\.layer\.(\d+)\.", name))]
    return ModelConfig(
        framework="vse_infty",
        backbone=backbone,
        embed_dim=len(tensors[projection]),
        bert=_bert(layers, tensors[words].shape[1]),
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
    """Check that a VSE-infinity file, which names each tensor of the backbone twice, stores it the same both times.

    Raises:
        WeightsError: two differ, and the file does not say which one the model uses.
    """
    for name, tensor in tensors.items():
        first, _, deeper = name.removeprefix("image.backbone.resnet.").partition(".")
        twin = f"image.backbone.{_SEQUENCES.get(first, '')}.{deeper}"
        if name.startswith("image.backbone.resnet.") and twin in tensors and not torch.equal(tensor, tensors[twin]):
            raise WeightsError(f"{source} contains two different tensors for one: {name} and {twin}")


def without_wrapper(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """An X-VLM file's tensors under the names of fine-tuned files, without the extra `bert.` of pre-trained ones."""
    return {re.sub(r"^text_encoder\.bert\.", "text_encoder.", name): tensor for name, tensor in tensors.items()}


def xvlm_model(tensors: Mapping[str, Tensor], source: str) -> ModelConfig:
    """The model in an X-VLM file; its sizes are those of the tensors.

    Args:
        tensors: as from :func:`without_wrapper`.
        source: the file, for messages.

    Raises:
        WeightsError: it is not such a checkpoint, or its variant is not supported.
    """
    words, patches = "text_encoder.embeddings.word_embeddings.weight", "vision_encoder.patch_embed.proj.weight"
    _check_present((words, "vision_proj.weight", "itm_head.0.weight"), tensors, source, "X-VLM")
    first = len(tensors[patches]) if patches in tensors else 0
    if first not in SWINS:
        raise WeightsError(f"the image encoder of {source} is not a Swin of width {' or '.join(map(str, SWINS))}")
    layers = [(int(match[1]), bool(match[2])) for name in tensors if (match := _LAYER.match(name))]
    fused = [layer for layer, sees_image in layers if sees_image]
    if not fused:
        raise WeightsError(f"{source} is not a checkpoint of X-VLM: no layer of its BERT sees the image")
    return ModelConfig(
        framework="xvlm",
        backbone=BackboneConfig(name=SWINS[first], weights="random"),
        embed_dim=len(tensors["vision_proj.weight"]),
        bert=_bert([layer for layer, _ in layers], tensors[words].shape[1]),
        xvlm=XvlmConfig(fusion_layer=min(fused)),
    )


def xvlm_name(name: str, *, fusion_layer: int) -> str:
    """The published name of one of our tensors.

    Args:
        name: ours, `heads.*` or `backbone.net.*`.
        fusion_layer: layers of BERT's lower half.
    """
    part, _, rest = name.partition(".")
    if part == "backbone":
        rest = rest.removeprefix("net.")
        # timm halves the map at the beginning of a stage, X-VLM's Swin at the end of the stage before.
        merged = re.match(r"layers\.(\d+)\.downsample\.", rest)
        if merged:
            rest = f"layers.{int(merged[1]) - 1}.downsample.{rest[merged.end() :]}"
        return f"vision_encoder.{rest}"
    side, _, rest = rest.partition(".")
    if side == "text":
        return f"text_encoder.{rest}"
    if side == "cross":
        layer, _, rest = rest.removeprefix("encoder.layer.").partition(".")
        return f"text_encoder.encoder.layer.{int(layer) + fusion_layer}.{rest}"
    return "temp" if side == "temperature" else f"{side}.{rest}"


def _check_present(names: Iterable[str], tensors: Mapping[str, Tensor], source: str, system: str) -> None:
    missing = [name for name in names if name not in tensors]
    if missing:
        raise WeightsError(f"{source} is not a checkpoint of {system}: it lacks {' and '.join(missing)}")


def _bert(layers: Iterable[int], width: int) -> BertConfig:
    heads = max(1, width // _BERT_HEAD_WIDTH)
    return BertConfig(weights="random", layers=max(layers, default=0) + 1, width=width, heads=heads)
