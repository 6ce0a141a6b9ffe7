"""VSE-infinity's heads of several cells as batched products; their BERTs run one after the other."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import batch_norm, linear

from goal_core.basics.devices import send
from goal_core.models.heads import Heads
from goal_core.models.sequences import attention_mask, length_mask
from goal_core.models.sets import ABSENT, TEMPERATURE, drop_cells, position_codes, sizes_of, unit_vectors
from goal_core.models.stacked.gru import stacked_gru

Tensors = Mapping[str, Tensor]
"""Parameters and buffers by name, each with the cells in front."""


class StackedVseInfty(Heads):
    """What `SetImageEncoder` and `BertTextEncoder` compute, for C cells at once.

    Args:
        tensors: those of `VseInftyHeads`.
        bert: a module like the cells' BERTs, whose own parameters are not used.
        size_augment: rate at which cells of an image are dropped in training; 0 drops none.
    """

    def __init__(self, tensors: Tensors, bert: nn.Module, *, size_augment: float) -> None:
        super().__init__()
        self._image, self._text = _inside("image.", tensors), _inside("text.", tensors)
        self._mlp, self._bert_tensors = _inside("mlp.", self._image), _inside("bert.", self._text)
        self._bert, self._size_augment = bert, size_augment

    def encode_images(self, features: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        """Unit vectors (C, B, D) of cells or regions (B, R, F), the same for all cells, as are those dropped."""
        if lengths_B is None:
            lengths_B = torch.full((len(features),), features.shape[1])
        if self.training and self._size_augment > 0:
            features, lengths_B = drop_cells(features, self._size_augment)
        mapped_CBRD = _for_each(self._image, "fc", features)
        if self._mlp:
            mapped_CBRD = mapped_CBRD + self._mapped_by_mlp(features)
        return unit_vectors(pooled(_inside("pool.", self._image), mapped_CBRD, lengths_B))

    def _mapped_by_mlp(self, regions_BRF: Tensor) -> Tensor:
        """As `RegionMlp`, (C, B, R, D). Channels have statistics of their own, so those of all cells are one batch."""
        first_CBRH = _for_each(self._mlp, "first", regions_BRF)
        norm = _inside("norm.", self._mlp)
        cells, images, regions, width = first_CBRH.shape
        if self.training:
            norm["num_batches_tracked"].add_(1)
        mean, variance, weight, bias = (
            norm[name].flatten() for name in ("running_mean", "running_var", "weight", "bias")
        )  # views, so that the cells' own running statistics are updated
        channels = first_CBRH.permute(1, 2, 0, 3).reshape(images * regions, cells * width)
        normed = batch_norm(channels, mean, variance, weight, bias, training=self.training)
        hidden = torch.relu(normed).view(images * regions, cells, width).transpose(0, 1)
        mapped = torch.baddbmm(self._mlp["second.bias"][:, None], hidden, self._mlp["second.weight"].mT)
        return mapped.view(cells, images, regions, -1)

    def encode_texts(self, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """Unit vectors (C, B, D) of padded captions."""
        mask = attention_mask(lengths_B, tokens_BL.shape[1], tokens_BL.device)
        rows = {name: tensor.unbind() for name, tensor in self._bert_tensors.items()}
        inputs = {"input_ids": tokens_BL, "attention_mask": mask}
        states = []
        for cell in range(len(self._text["fc.weight"])):
            own = {name: of_cells[cell] for name, of_cells in rows.items()}
            # Every cell draws the same numbers; the last one leaves the generators where each leaves its own.
            devices = [tokens_BL.device] if tokens_BL.device.type == "cuda" else []
            with torch.random.fork_rng(devices, enabled=cell < len(self._text["fc.weight"]) - 1):
                states.append(functional_call(self._bert, own, kwargs=inputs).last_hidden_state)
        states_CTW = torch.stack(states).flatten(1, 2)
        mapped = torch.baddbmm(self._text["fc.bias"][:, None], states_CTW, self._text["fc.weight"].mT)
        mapped_CBLD = mapped.view(len(states), *tokens_BL.shape, -1)
        return unit_vectors(pooled(_inside("pool.", self._text), mapped_CBLD, lengths_B))


def pooled(parameters: Tensors, features_CBND: Tensor, lengths_B: Tensor) -> Tensor:
    """What `GeneralizedPooling` computes, for C cells at once.

    Args:
        parameters: those of the poolings.
        features_CBND: sets, (C, B, N, D).
        lengths_B: as in `GeneralizedPooling`.

    Returns:
        (C, B, D).
    """
    weights_CBN = _rank_weights(parameters, lengths_B)
    longest = weights_CBN.shape[2]
    features_CBND = features_CBND[:, :, :longest]
    if int(lengths_B.min()) < longest:
        absent_BN1 = ~length_mask(lengths_B, longest, features_CBND.device)[:, :, None]
        ranked = features_CBND.masked_fill(absent_BN1, ABSENT).sort(dim=2, descending=True)[0]
        ranked = ranked.masked_fill(absent_BN1, 0)
    else:
        ranked = features_CBND.sort(dim=2, descending=True)[0]
    with torch.autocast(ranked.device.type, enabled=False):
        return (weights_CBN[:, :, None] @ ranked.to(weights_CBN.dtype))[:, :, 0]


def _rank_weights(parameters: Tensors, lengths_B: Tensor) -> Tensor:
    """Weight of each rank for sets of these sizes, (C, B, N)."""
    score = parameters["score.weight"]
    cells, _, width = score.shape
    sizes_S, which_B = sizes_of(lengths_B)
    longest, device = int(sizes_S[0]), score.device
    # Packed order; a set's backward direction reads it from its end.
    steps_T, sets_T = (torch.arange(longest)[:, None] < sizes_S).nonzero(as_tuple=True)
    ranks_2T = torch.stack((steps_T, sizes_S[sets_T] - 1 - steps_T))
    codes_2TW = send(position_codes(longest, width)[ranks_2T], device)
    both = [
        torch.stack([parameters[f"rnn.{name}_l0{way}"] for way in ("", "_reverse")], 1).flatten(0, 1)
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    ]
    counts = torch.bincount(steps_T).tolist()
    states = stacked_gru(codes_2TW.expand(cells, -1, -1, -1).flatten(0, 1), counts, *both, every=True)
    # The score is linear, so that the mean of both directions can be taken of their scores.
    scores_C2T = torch.bmm(states.view(cells, -1, width), score.mT).float().view(cells, 2, -1)
    place_2SN = torch.zeros(2, len(sizes_S), longest, dtype=torch.long)
    for way, ranks_T in enumerate(ranks_2T):
        place_2SN[way, sets_T, ranks_T] = torch.arange(len(steps_T))
    place_2SN = send(place_2SN, device)
    scores_CSN = (scores_C2T[:, 0, place_2SN[0]] + scores_C2T[:, 1, place_2SN[1]]) / 2
    mask_SN = length_mask(sizes_S, longest, device)
    weights_CSN = torch.softmax(scores_CSN.masked_fill(~mask_SN, ABSENT) / TEMPERATURE, dim=2)
    return weights_CSN[:, send(which_B, device)]


def _inside(prefix: str, tensors: Tensors) -> dict[str, Tensor]:
    """Those whose names start so, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _for_each(tensors: Tensors, layer: str, inputs_BRF: Tensor) -> Tensor:
    """A linear layer of every cell on the same inputs, which is one product: a view (C, B, R, D) of (B, R, C, D)."""
    weight_CDF, bias_CD = tensors[f"{layer}.weight"], tensors[f"{layer}.bias"]
    mapped = linear(inputs_BRF, weight_CDF.flatten(0, 1), bias_CD.flatten())
    return mapped.view(*mapped.shape[:2], *bias_CD.shape).permute(2, 0, 1, 3)
