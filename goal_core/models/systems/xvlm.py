"""X-VLM (Zeng et al., ICML 2022) for retrieval: two encoders, and a cross encoder that predicts matches."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from goal_core.basics.devices import send
from goal_core.basics.seeding import derive_seed
from goal_core.models.batch_rows import Share, in_chunks
from goal_core.models.bert import split_bert
from goal_core.models.config import ModelConfig
from goal_core.models.heads import Heads, Pairs, ParameterGroup
from goal_core.models.sequences import attention_mask
from goal_core.models.systems.losses import (
    NO_NEGATIVE,
    GradientNorms,
    contrastive_loss,
    draw_negatives,
    matching_labels,
)


class XvlmHeads(Heads):
    """Everything of X-VLM except the image backbone.

    An image is represented by the mean of its cells, followed by the cells; a caption by the states of its word pieces.
    The first vector of each gives the embedding. All of both enter the cross encoder, whose first output state predicts
    whether they match.

    Args:
        model: settings of the text encoder and of the joint space.
        num_features: width F of the backbone's cells.
        vocab_size: number of word pieces.
        seed: the cell's seed; the initial weights that no file gives depend on it and on nothing else.

    Source: X-VLM, section 3, without the losses of masked words and boxes, which its fine-tuning for retrieval omits.
    """

    masks_same_image = True
    temperature: Tensor

    def __init__(self, model: ModelConfig, *, num_features: int, vocab_size: int, seed: int) -> None:
        super().__init__()
        self.rerank_top = model.xvlm.rerank_top
        scale = model.xvlm.objective_scale
        self.scales_objective = scale == "itc"
        self._weight = model.xvlm.objective_weight * (1.0 if scale == "itc" else scale)
        self._gradients = GradientNorms()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, "init"))
            self.text, self.cross = split_bert(
                model.bert, vocab_size=vocab_size, fusion_layer=model.xvlm.fusion_layer, image_width=num_features
            )
            width: int = self.text.config.hidden_size  # type: ignore[union-attr, assignment]  # a BertModel has it
            self.vision_proj = nn.Linear(num_features, model.embed_dim)
            self.text_proj = nn.Linear(width, model.embed_dim)
            self.itm_head = nn.Sequential(
                nn.Linear(width, 2 * width), nn.LayerNorm(2 * width), nn.GELU(), nn.Linear(2 * width, 2)
            )
        self.register_buffer("temperature", torch.tensor(model.xvlm.temperature))

    def image_tokens(self, features: Tensor) -> Tensor:
        """The mean cell, then the cells: (B, R, F) from (B, R - 1, F)."""
        return torch.cat((features.mean(dim=1, keepdim=True), features), dim=1)

    def text_states(self, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """Last states of the text half, (B, L, W)."""
        mask = attention_mask(lengths_B, tokens_BL.shape[1], tokens_BL.device)
        states: Tensor = self.text(input_ids=tokens_BL, attention_mask=mask).last_hidden_state
        return states

    def embed_images(self, tokens_BRF: Tensor) -> Tensor:
        """Unit vectors (B, D) of the mean cells."""
        return normalize(self.vision_proj(tokens_BRF[:, 0]), dim=-1)

    def embed_texts(self, states_BLW: Tensor) -> Tensor:
        """Unit vectors (B, D) of the states at `[CLS]`."""
        return normalize(self.text_proj(states_BLW[:, 0]), dim=-1)

    def match(self, tokens_PRF: Tensor, states_PLW: Tensor, lengths_P: Tensor) -> Tensor:
        """Logits of a match of P pairs, (P,), from the images' tokens, the captions' states and their lengths."""
        return self._logits(tokens_PRF, states_PLW, lengths_P)[:, 1]

    def encode_images(self, features: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        """Unit vectors (B, D), by way of the image tokens."""
        return self.embed_images(self.image_tokens(features))

    def encode_texts(self, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """Unit vectors (B, D), by way of the caption states."""
        return self.embed_texts(self.text_states(tokens_BL, lengths_B))

    def forward_pairs(
        self, features: Tensor, image_lengths_B: Tensor | None, tokens_BL: Tensor, lengths_B: Tensor
    ) -> Pairs:
        """Embeddings, and the inputs of image-text matching; the gradients that reach both in backward are noted."""
        tokens, states = self.image_tokens(features), self.text_states(tokens_BL, lengths_B)
        watch = self._gradients.watch
        matched_tokens, matched_states = watch("matching_grad", tokens, _on_cells), watch("matching_grad", states)
        image_BD = self.embed_images(watch("objective_grad", tokens, _on_cells))
        text_BD = self.embed_texts(watch("objective_grad", states))
        context = matched_tokens, matched_states, send(lengths_B, states.device)
        return Pairs(image_BD=image_BD, text_BD=text_BD, context=context)

    def replaced_loss(self, image_BD: Tensor, text_BD: Tensor, ids_B: Tensor) -> Tensor:
        """The contrastive loss of X-VLM (ITC), at the temperature with which negatives are drawn."""
        return contrastive_loss(image_BD, text_BD, ids_B, self.temperature)

    def take_gradient_norms(self, share: Share) -> dict[str, Tensor]:
        """`objective_grad` and `matching_grad`: norms of the gradients on the image's cells and the caption's states.

        Both are those of the losses in the sum, weights and scales included. What gets no gradient, as the cells of a
        frozen backbone, does not count.
        """
        return {name: share.sum(square).sqrt() for name, square in sorted(self._gradients.take().items())}

    def total_loss(self, surrogate: Tensor, pairs: Pairs, ids_B: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The weighted objective plus image-text matching; `itm` and `itm_accuracy` (in [0, 1]) are logged."""
        matching, accuracy = self._matching(pairs, ids_B)
        loss = surrogate * (self._weight / (2 * len(ids_B))) + matching
        return loss, {"itm": matching.detach(), "itm_accuracy": accuracy}

    def parameter_groups(self, bert_lr_scale: float) -> list[ParameterGroup]:
        """Heads and BERT (both halves), each with and without weight decay."""
        bert = [*self.text.named_parameters(prefix="text"), *self.cross.named_parameters(prefix="cross")]
        inside = {id(parameter) for _, parameter in bert}
        heads = [(name, parameter) for name, parameter in self.named_parameters() if id(parameter) not in inside]
        return [*_by_decay("heads", heads, 1.0), *_by_decay("bert", bert, bert_lr_scale)]

    def backbone_groups(self, backbone: nn.Module, lr_scale: float) -> list[ParameterGroup]:
        """The image backbone with and without weight decay."""
        return _by_decay("backbone", list(backbone.named_parameters()), lr_scale)

    def _matching(self, pairs: Pairs, ids_B: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and accuracy over B positive pairs, B captions with a drawn image, and B images with a drawn caption.

        Of several processes each has the loss of all pairs, and the gradient of its own.
        """
        tokens_BRF, states_BLW, lengths_B = pairs.context
        similarity_BB = (pairs.image_BD @ pairs.text_BD.T).detach()
        image_B, any_image_B = draw_negatives(similarity_BB.T, ids_B, self.temperature)
        text_B, any_text_B = draw_negatives(similarity_BB, ids_B, self.temperature)
        everyone_B = torch.arange(len(ids_B), device=ids_B.device)
        images, texts = torch.cat((everyone_B, image_B, everyone_B)), torch.cat((everyone_B, everyone_B, text_B))
        labels = matching_labels(any_image_B, any_text_B)

        def logits_of(images_P: Tensor, texts_P: Tensor) -> tuple[Tensor]:
            return (self._logits(tokens_BRF[images_P], states_BLW[texts_P], lengths_B[texts_P]),)

        share = pairs.share
        rows = share.rows(len(labels))
        chosen = images[rows.slice], texts[rows.slice]
        logits = in_chunks(logits_of, rows, 3 * share.chunk, *chosen, reads_graph=True)[0].float()
        counted = labels >= 0
        if share.processes == 1:
            right = (logits.argmax(dim=1) == labels).sum()
            return cross_entropy(logits, labels, ignore_index=NO_NEGATIVE), right / counted.sum()
        own = labels[rows.slice] if share.owned(len(labels)) else labels.new_full((1,), NO_NEGATIVE)
        part = cross_entropy(logits, own, ignore_index=NO_NEGATIVE, reduction="sum") / counted.sum()
        right = share.sum((logits.argmax(dim=1) == own).sum())
        return part + (share.sum(part) - part.detach()), right / counted.sum()

    def _logits(self, tokens_PRF: Tensor, states_PLW: Tensor, lengths_P: Tensor) -> Tensor:
        mask = attention_mask(lengths_P, states_PLW.shape[1], states_PLW.device)
        logits: Tensor = self.itm_head(self.cross(states_PLW, mask, tokens_PRF)[:, 0])
        return logits


def _on_cells(gradient_BRF: Tensor) -> Tensor:
    """The gradient on the R - 1 cells, (B, R - 1, F), of one on the image's tokens: the first is the cells' mean."""
    return gradient_BRF[:, 1:] + gradient_BRF[:, :1] / (gradient_BRF.shape[1] - 1)


def _by_decay(name: str, named: list[tuple[str, nn.Parameter]], lr_scale: float) -> list[ParameterGroup]:
    """Weight decay applies to matrices, not to biases (Swin's relative-position tables included) or norms."""
    plain = [parameter for key, parameter in named if parameter.ndim < 2 or "bias" in key]
    left_out = {id(parameter) for parameter in plain}
    matrices = [parameter for _, parameter in named if id(parameter) not in left_out]
    return [
        ParameterGroup(name=name, parameters=tuple(matrices), lr_scale=lr_scale),
        ParameterGroup(name=f"{name} without decay", parameters=tuple(plain), lr_scale=lr_scale, decay=False),
    ]
