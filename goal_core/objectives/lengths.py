"""Whether embeddings are unit vectors, and what is wrong with those that are not."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor

UNIT_TOLERANCE: Final = 0.01
"""How far the length of an embedding may be from 1; half precision rounds within it."""


def no_unit_vectors(emb: Tensor) -> Tensor:
    """Which rows (..., D) are not of unit length, or not finite: (...), bool."""
    off: Tensor = ~((torch.linalg.vector_norm(emb.float(), dim=-1) - 1).abs() <= UNIT_TOLERANCE)
    return off


def describe_unsound(**embeddings: Tensor) -> str:
    """What is not finite, or not of unit length, in embeddings (N, D), in words; they are called by their keywords."""

    def rows(bad: Mapping[str, Tensor]) -> str:
        counts = {kind: int(own.sum()) for kind, own in bad.items()}
        return " and ".join(f"{count} of {len(embeddings[kind])} {kind}" for kind, count in counts.items() if count)

    if where := rows({kind: (~emb.isfinite()).any(1) for kind, emb in embeddings.items()}):
        return f"NaN or infinity in the embeddings of {where}"
    off = {kind: no_unit_vectors(emb) for kind, emb in embeddings.items()}
    lengths = torch.linalg.vector_norm(torch.cat([emb[off[kind]].float() for kind, emb in embeddings.items()]), dim=1)
    worst = float(lengths[(lengths - 1).abs().argmax()])
    return (
        f"the embeddings of {rows(off)} are not of unit length (one is {worst:.3g} long): they are not L2-normalised, "
        "or what is normalised overflows or is 0"
    )


def warn_of_lengths(image_emb: Tensor, text_emb: Tensor, consequence: str) -> None:
    """Warn the caller's caller if rows (..., D) are not of unit length, and of the consequence."""
    for kind, emb in (("image", image_emb), ("text", text_emb)):
        off = no_unit_vectors(emb)
        if bool(off.any()):
            of = f"{int(off.sum())} of {off.numel()} {kind} embeddings"
            warnings.warn(f"{of} are not of unit length: {consequence}", stacklevel=3)
