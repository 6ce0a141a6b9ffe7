"""The public checkpoints of X-VLM (``zengyan-97/X-VLM``, ``.th``): pre-trained ones and those tuned for retrieval."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from goal_core.errors import WeightsError
from goal_core.models import BackboneConfig, BertConfig, ModelConfig
from goal_core.models.config import XvlmConfig

SWINS = {128: "swin_base_patch4_window12_384"}
"""timm's name of the Swin by the width of its first stage."""

_BERT_HEAD_WIDTH = 64
_PATCHES = "vision_encoder.patch_embed.proj.weight"
_WORDS = "text_encoder.embeddings.word_embeddings.weight"
_LAYER = re.compile(r"text_encoder\.encoder\.layer\.(\d+)\.(crossattention\.)?")

XVLM_LEFTOVERS: Mapping[str, str] = {
    r"vision_encoder\..*\.(relative_position_index|attn_mask)$": "counted anew for the size of the windows",
    r"text_encoder\.cls\.": "the head that guesses masked words",
    r"bbox_head\.": "the head that finds boxes",
    r"text_encoder\.embeddings\.position_ids$": "0, 1, 2, ..., which today's transformers counts by itself",
}
"""What the published files hold beyond the model, with the reason."""


def without_wrapper(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors with the text encoder's names as fine-tuned files have them: pre-trained ones say `bert.` besides."""
    return {re.sub(r"^text_encoder\.bert\.", "text_encoder.", name): tensor for name, tensor in tensors.items()}


def xvlm_model(tensors: Mapping[str, Tensor], source: str) -> ModelConfig:
    """The model in a file, sizes as its tensors have them.

    Args:
        tensors: as from :func:`without_wrapper`.
        source: the file, for messages.

    Raises:
        WeightsError: it is another system's, or of a variant that this framework does not have.
    """
    lacking = [name for name in (_WORDS, "vision_proj.weight", "itm_head.0.weight") if name not in tensors]
    if lacking:
        raise WeightsError(f"{source} is no X-VLM checkpoint: it lacks {' and '.join(lacking)}")
    first = len(tensors[_PATCHES]) if _PATCHES in tensors else 0
    if first not in SWINS:
        raise WeightsError(f"{source} has another image encoder than a Swin of width {' or '.join(map(str, SWINS))}")
    layers = [(int(found[1]), bool(found[2])) for name in tensors if (found := _LAYER.match(name))]
    fused = [layer for layer, looks in layers if looks]
    if not fused:
        raise WeightsError(f"{source} is no X-VLM checkpoint: no layer of its BERT looks at the image")
    width = tensors[_WORDS].shape[1]
    return ModelConfig(
        framework="xvlm",
        backbone=BackboneConfig(name=SWINS[first], weights="random"),
        embed_dim=len(tensors["vision_proj.weight"]),
        bert=BertConfig(
            weights="random",
            layers=max(layer for layer, _ in layers) + 1,
            width=width,
            heads=max(1, width // _BERT_HEAD_WIDTH),
        ),
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
        # timm halves the map where a stage begins, X-VLM's Swin where the one before ends.
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
