"""A small BERT as published checkpoints hold it: random tensors by their names, and the forward pass written out."""

import math

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm

WIDTH = 128
Tensors = dict[str, Tensor]


def linear(name: str, rows: int, columns: int) -> Tensors:
    return {f"{name}.weight": torch.randn(rows, columns) / math.sqrt(columns), f"{name}.bias": torch.randn(rows) / 4}


def norm(name: str, width: int) -> Tensors:
    return {f"{name}.weight": torch.rand(width) + 0.5, f"{name}.bias": torch.randn(width) / 4}


def attention(at: str, width: int) -> Tensors:
    parts = linear(f"{at}.self.query", WIDTH, WIDTH) | linear(f"{at}.self.key", WIDTH, width)
    parts |= linear(f"{at}.self.value", WIDTH, width) | linear(f"{at}.output.dense", WIDTH, WIDTH)
    return parts | norm(f"{at}.output.LayerNorm", WIDTH)


def bert_tensors(prefix: str, words: int, layers: int, crossing: int = 1000, image: int = 0) -> Tensors:
    """All but the pooler's; layers from ``crossing`` on also attend to image tokens of a width."""
    tensors = {
        "embeddings.position_ids": torch.arange(512)[None],
        "embeddings.word_embeddings.weight": torch.randn(words, WIDTH) / 4,
        "embeddings.position_embeddings.weight": torch.randn(512, WIDTH) / 4,
        "embeddings.token_type_embeddings.weight": torch.randn(2, WIDTH) / 4,
        **norm("embeddings.LayerNorm", WIDTH),
    }
    for layer in range(layers):
        at = f"encoder.layer.{layer}"
        tensors |= attention(f"{at}.attention", WIDTH)
        if layer >= crossing:
            tensors |= attention(f"{at}.crossattention", image)
        tensors |= linear(f"{at}.intermediate.dense", 4 * WIDTH, WIDTH) | linear(f"{at}.output.dense", WIDTH, 4 * WIDTH)
        tensors |= norm(f"{at}.output.LayerNorm", WIDTH)
    return {prefix + name: tensor for name, tensor in tensors.items()}


class PlainBert:
    """The forward pass for one caption, with heads of 64 numbers."""

    def __init__(self, tensors: Tensors, prefix: str) -> None:
        self.t, self._prefix = tensors, prefix

    def linear(self, name: str, x: Tensor) -> Tensor:
        return x @ self.t[f"{name}.weight"].T + self.t[f"{name}.bias"]

    def norm(self, name: str, x: Tensor, eps: float) -> Tensor:
        return layer_norm(x, x.shape[-1:], self.t[f"{name}.weight"], self.t[f"{name}.bias"], eps=eps)

    def attend(self, at: str, x: Tensor, other: Tensor) -> Tensor:
        asked = (("query", x), ("key", other), ("value", other))
        query, key, value = (self.linear(f"{at}.self.{name}", states) for name, states in asked)
        heads = [slice(start, start + 64) for start in range(0, WIDTH, 64)]
        mixed = [torch.softmax(query[:, h] @ key[:, h].T / 8, dim=1) @ value[:, h] for h in heads]
        return self.norm(f"{at}.output.LayerNorm", x + self.linear(f"{at}.output.dense", torch.cat(mixed, 1)), 1e-12)

    def layer(self, number: int, x: Tensor, image: Tensor | None = None) -> Tensor:
        at = f"{self._prefix}encoder.layer.{number}"
        x = self.attend(f"{at}.attention", x, x)
        if image is not None:
            x = self.attend(f"{at}.crossattention", x, image)
        wide = self.linear(f"{at}.output.dense", gelu(self.linear(f"{at}.intermediate.dense", x)))
        return self.norm(f"{at}.output.LayerNorm", x + wide, 1e-12)

    def text(self, pieces: list[int], layers: int) -> Tensor:
        """The states after the first layers."""
        at = f"{self._prefix}embeddings"
        x = self.t[f"{at}.word_embeddings.weight"][pieces] + self.t[f"{at}.token_type_embeddings.weight"][0]
        x = self.norm(f"{at}.LayerNorm", x + self.t[f"{at}.position_embeddings.weight"][: len(pieces)], 1e-12)
        for number in range(layers):
            x = self.layer(number, x)
        return x
