"""X-VLM (Zeng et al., ICML 2022) for retrieval: two encoders, a cross encoder that predicts matches, and its losses.

The contrastive loss (ITC) is what the objectives replace. Negative pairs for image-text matching (ITM) are drawn from
the batch, similar ones more often, as in ALBEF (Li et al., NeurIPS 2021), section 3.2.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from goal_sweep.goal_core.basics.devices import computing, send
from goal_sweep.goal_core.basics.numerics import derive_seed
from goal_sweep.goal_core.models.batch_rows import in_chunks
from goal_sweep.goal_core.models.config import ModelConfig
from goal_sweep.goal_core.models.heads import Heads, Pairs, ParameterGroup, attention_mask
from goal_sweep.goal_core.models.hub import split_bert, word_states

NO_NEGATIVE = -100
"""Label of a pair that is ignored, by the convention of torch's cross entropy."""
_FLOOR = 1e-5
"""Added to every probability, so that any negative can be drawn."""


class XvlmHeads(Heads):
    """Everything of X-VLM except the image backbone.

    An image is represented by the mean of its cells, followed by the cells; a caption by the states of its word pieces.
    The first vector of each gives the embedding. All of both enter the cross encoder, whose first output state predicts
    whether they match.

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
        self._squares: dict[str, Tensor] = {}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, "init"))
            halves = partial(split_bert, fusion_layer=model.xvlm.fusion_layer, image_width=num_features)
            self.text, self.cross = halves(model.bert, vocab_size=vocab_size)
            width: int = self.text.config.hidden_size  # type: ignore[union-attr, assignment]  # a BertModel has it
            self.vision_proj = nn.Linear(num_features, model.embed_dim)
            self.text_proj = nn.Linear(width, model.embed_dim)
            inner = 2 * width
            self.itm_head = nn.Sequential(nn.Linear(width, inner), nn.LayerNorm(inner), nn.GELU(), nn.Linear(inner, 2))
        self.register_buffer("temperature", torch.tensor(model.xvlm.temperature))

    def image_tokens(self, features: Tensor) -> Tensor:
        """The mean cell, then the cells: (B, R, F) from (B, R - 1, F)."""
        return torch.cat((features.mean(dim=1, keepdim=True), features), dim=1)

    def text_states(self, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """Last states of the text half, (B, L, W)."""
        return word_states(self.text, tokens_BL, lengths_B)

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
        image_BD = self.embed_images(self._watched("objective_grad", tokens, _on_cells))
        text_BD = self.embed_texts(self._watched("objective_grad", states))
        matched = self._watched("matching_grad", tokens, _on_cells), self._watched("matching_grad", states)
        return Pairs(image_BD=image_BD, text_BD=text_BD, context=(*matched, send(lengths_B, states.device)))

    def replaced_loss(self, image_BD: Tensor, text_BD: Tensor, ids_B: Tensor) -> Tensor:
        """The contrastive loss of X-VLM (ITC), at the temperature with which negatives are drawn."""
        return contrastive_loss(image_BD, text_BD, ids_B, self.temperature)

    def take_gradient_norms(self) -> dict[str, Tensor]:
        """`objective_grad` and `matching_grad`: norms of the gradients on the image's cells and the caption's states.

        Both are those of the losses in the sum, weights and scales included. What gets no gradient, as the cells of a
        frozen backbone, does not count.
        """
        squares, self._squares = self._squares, {}
        return {name: square.sqrt() for name, square in sorted(squares.items())}

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

    def _watched(self, loss: str, tensor: Tensor, of: Callable[[Tensor], Tensor] = Tensor.detach) -> Tensor:
        """A view of a tensor for one loss to read; the norm of its gradient, seen ``of`` some part, is noted."""
        view = tensor.view_as(tensor)
        if view.requires_grad:
            view.register_hook(partial(self._note, loss, of))  # type: ignore[no-untyped-call]  # of torch
        return view

    def _note(self, loss: str, of: Callable[[Tensor], Tensor], gradient: Tensor) -> None:
        """Add up squares: a batch that is encoded in chunks has a backward pass for each."""
        square = of(gradient.detach()).square().sum()
        self._squares[loss] = self._squares[loss] + square if loss in self._squares else square

    def _matching(self, pairs: Pairs, ids_B: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and accuracy over B positive pairs, B captions with a drawn image, and B images with a drawn caption."""
        tokens_BRF, states_BLW, lengths_B = pairs.context
        similarity_BB = (pairs.image_BD @ pairs.text_BD.T).detach()
        image_B, any_image_B = draw_negatives(similarity_BB.T, ids_B, self.temperature)
        text_B, any_text_B = draw_negatives(similarity_BB, ids_B, self.temperature)
        everyone_B = torch.arange(len(ids_B), device=ids_B.device)
        images, texts = torch.cat((everyone_B, image_B, everyone_B)), torch.cat((everyone_B, everyone_B, text_B))
        drawn = torch.where(torch.cat((any_image_B, any_text_B)), 0, NO_NEGATIVE)
        labels = torch.cat((torch.ones_like(everyone_B), drawn))  # of a match 1, of none 0

        def logits_of(images_P: Tensor, texts_P: Tensor) -> tuple[Tensor]:
            return (self._logits(tokens_BRF[images_P], states_BLW[texts_P], lengths_B[texts_P]),)

        logits = in_chunks(logits_of, len(labels), 3 * pairs.chunk, images, texts, reads_graph=True)[0]
        right = (logits.argmax(dim=1) == labels).sum()
        return cross_entropy(logits, labels, ignore_index=NO_NEGATIVE), right / (labels >= 0).sum()

    def _logits(self, tokens_PRF: Tensor, states_PLW: Tensor, lengths_P: Tensor) -> Tensor:
        mask = attention_mask(lengths_P, states_PLW.shape[1], states_PLW.device)
        with computing(self.cross, states_PLW.device):
            crossed = self.cross.encoder(states_PLW, attention_mask=mask, encoder_hidden_states=tokens_PRF)
        logits: Tensor = self.itm_head(crossed.last_hidden_state[:, 0].float())
        return logits


def contrastive_loss(image_BD: Tensor, text_BD: Tensor, ids_B: Tensor, temperature: Tensor) -> Tensor:
    """Mean cross entropy of matching each image to its captions and each caption to its images, half of the sum.

    All pairs of the same image count as right answers, with equal shares.

    Args:
        image_BD: unit vectors, (B, D); row i belongs to row i of the texts.
        ids_B: equal for pairs of the same image, (B,) int64.

    Source: X-VLM (Zeng et al., ICML 2022), section 3.2, with the targets that its code uses for retrieval.
    """
    logits_BB = image_BD @ text_BD.T / temperature
    same_BB = (ids_B[:, None] == ids_B[None, :]).to(logits_BB)
    targets_BB = same_BB / same_BB.sum(dim=1, keepdim=True)
    return torch.stack((cross_entropy(logits_BB, targets_BB), cross_entropy(logits_BB.T, targets_BB))).mean()


@torch.no_grad()
def draw_negatives(similarity_BB: Tensor, ids_B: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
    """Draw one negative for each row from the softmax of its similarities, pairs of the row's own image excluded.

    Draws from torch's global generator of the similarities' device.

    Returns:
        The candidate drawn for each row, (B,) int64; and whether the row has any negative, (B,) bool. Where it has
        none, the candidate is the row itself.
    """
    same_BB = ids_B[:, None] == ids_B[None, :]
    chances_BB = (torch.softmax(similarity_BB / temperature, dim=1) + _FLOOR).masked_fill(same_BB, 0)
    any_B = ~same_BB.all(dim=1)
    chances_BB = torch.where(any_B[:, None], chances_BB, torch.eye(len(ids_B), device=ids_B.device))
    # What `multinomial` draws, without its check of the numbers, which waits for the device.
    return (chances_BB / torch.empty_like(chances_BB).exponential_()).argmax(dim=1), any_B


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
