"""A Swin small enough for a CPU, registered with timm like any of its own."""

from typing import Any

from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models.swin_transformer import SwinTransformer

_HALF = (0.5, 0.5, 0.5)
_CFG = {"input_size": (3, 64, 64), "fixed_input_size": True, "mean": _HALF, "std": _HALF, "classifier": "head.fc"}
default_cfgs = generate_default_cfgs({"swin_mini_patch8_window4.untrained": _CFG})
"""Metadata that timm keeps of a model; it looks for this name in the model's module."""


@register_model  # type: ignore[untyped-decorator]  # of timm
def swin_mini_patch8_window4(pretrained: bool = False, **kwargs: Any) -> SwinTransformer:
    """Two stages of two blocks each, 32 and 64 wide: 64 px become 4 x 4 cells. 140,780 parameters, none pretrained."""
    sizes = {"patch_size": 8, "window_size": 4, "embed_dim": 32, "depths": (2, 2), "num_heads": (2, 4), **kwargs}
    net: SwinTransformer = build_model_with_cfg(SwinTransformer, "swin_mini_patch8_window4", pretrained, **sizes)
    return net
