"""The last feature map of any timm backbone, as cells."""

from __future__ import annotations

from torch import Tensor, nn

from goal_core.errors import WeightsError


def grid_features(net: nn.Module, images_B3SS: Tensor) -> Tensor:
    """Cells of a batch of images.

    Args:
        net: timm model: convolutional (channels first), Swin-like (channels last) or a ViT, whose class and register
            tokens are left out.
        images_B3SS: normalised pixels, (B, 3, S, S) float.

    Returns:
        (B, L, C), row by row.

    Raises:
        WeightsError: the features are neither a map nor tokens.
    """
    features: Tensor = net.forward_features(images_B3SS)  # type: ignore[operator]  # timm models all have it
    width = int(net.num_features)  # type: ignore[arg-type]
    if features.ndim == 3 and features.shape[2] == width:
        return features[:, getattr(net, "num_prefix_tokens", 0) :]
    if features.ndim == 4 and features.shape[1] == width:
        return features.flatten(2).transpose(1, 2)
    if features.ndim == 4 and features.shape[3] == width:
        return features.flatten(1, 2)
    raise WeightsError(
        f"the backbone gives no cells of {width} numbers: its features have the shape {tuple(features.shape)}"
    )
