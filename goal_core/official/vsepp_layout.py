"""The public checkpoints of VSE++ (``fartashf/vsepp``, ``model_best.pth.tar``)."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from goal_core.errors import WeightsError

RESNETS = {f"resnet{depth}": f"resnet{depth}.tv_in1k" for depth in (18, 34, 50, 101, 152)}
"""Their word for a backbone and timm's; the weights they started from are torchvision's first ones."""


def vsepp_settings(options: Namespace, tensors: Mapping[str, Tensor], source: str) -> dict[str, Any]:
    """What the file says of its model: ``backbone`` (timm's name), ``word_dim`` and ``embed_dim``.

    Raises:
        WeightsError: it is a variant that this framework does not have.
    """
    if not any(name.startswith("cnn.") for name in tensors):
        raise WeightsError(f"{source} is a VSE++ model of precomputed features: it holds no image network to convert")
    cnn = getattr(options, "cnn_type", None)
    if cnn not in RESNETS:
        raise WeightsError(f"{source} has the image network {cnn!r}; convertible are {', '.join(RESNETS)}")
    for name, usual in (("use_abs", False), ("no_imgnorm", False), ("measure", "cosine"), ("num_layers", 1)):
        value = getattr(options, name, usual)
        if value != usual:
            raise WeightsError(f"{source} was trained with {name} = {value!r}; only {usual!r} can be converted")
    return {
        "backbone": RESNETS[cnn],
        "word_dim": tensors["embed.weight"].shape[1],
        "embed_dim": tensors["fc.weight"].shape[0],
    }


def vsepp_name(name: str) -> str:
    """The published name of one of our tensors (image and text encoder in one mapping: their names do not meet)."""
    part, _, rest = name.partition(".")
    if part == "backbone":
        return f"cnn.module.{rest.removeprefix('net.')}"
    return rest.removeprefix("image.").removeprefix("text.")


VSEPP_LEFTOVERS: Mapping[str, str] = {}
"""Nothing: the classifier was removed before saving."""
