"""Encode some rows of a batch as if it were encoded whole, so that a batch need not fit into memory.

Two things make the result the whole batch's. Each chunk of rows passes twice, first without keeping activations, then
with them, once the gradient of its embeddings is known (torch's activation checkpointing does that). And each random
draw is made for the whole batch, and the chunk takes its rows of it, so that dropout leaves out the same numbers.

Source: GradCache (Gao et al., RepL4NLP 2021).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint


def in_chunks(
    encode: Callable[..., tuple[Tensor, ...]], total: int, size: int, *tensors: Tensor | None, reads_graph: bool = False
) -> tuple[Tensor, ...]:
    """Encode the rows of a batch, chunk by chunk, keeping the activations of none until its gradient is computed.

    A batch that is encoded whole passes ``encode`` as it is. Otherwise ``encode`` may draw random numbers only in the
    ways that :class:`WholeBatchDraws` knows. After the call the generators are where the whole batch leaves them.

    Args:
        encode: maps the chunk's rows of each tensor to tensors that have one row (or n) for each of these.
        tensors: get no gradient.
        reads_graph: whether ``encode`` also reads tensors that get a gradient, besides parameters. Then a chunk keeps
            its graph, without activations; otherwise it keeps nothing but its result.
    """
    if not 0 < size < total:
        return encode(*tensors)
    drawn: list[Tensor] = []

    def encode_some(rows: slice, tie: Tensor | None, *own: Tensor | None) -> tuple[Tensor, ...]:
        with WholeBatchDraws(rows, total, drawn):  # where a second pass finds its draws
            return encode(*own)

    # A chunk without a graph is one node of it, which needs an input with a gradient.
    tie = None if reads_graph else torch.empty(0, requires_grad=True)
    results = []
    for start in range(0, total, size):
        rows = slice(start, min(start + size, total))
        own = [None if tensor is None else tensor[rows] for tensor in tensors]
        made = checkpoint(encode_some, rows, tie, *own, use_reentrant=not reads_graph, preserve_rng_state=False)
        results.append(made)
    return tuple(torch.cat(column) for column in zip(*results, strict=True))


class WholeBatchDraws(TorchFunctionMode):
    """Within this context random draws for some rows of a batch are those rows of the draws for its ``total``.

    It knows dropout, attention's dropout, stochastic depth (``bernoulli_``) and `torch.rand`. The first dimension must
    belong to the batch, with the same number of elements for each row. Any other random function is refused.

    The draws equal the whole batch's bit for bit where torch draws them in the order of the elements: on the CPU, and
    on CUDA for all but attention's dropout, which torch's fused kernels draw in an order of their own.

    What is ``drawn`` for the whole batch serves all its chunks and their second passes, so that the time for draws does
    not grow with their number. A draw of dropout takes one byte for each number.
    """

    def __init__(self, rows: slice, total: int, drawn: list[Tensor]) -> None:
        super().__init__()
        self._rows, self._total, self._drawn, self._next = rows, total, drawn, 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for each of its functions."""
        if func in _REFUSED:
            name = getattr(func, "__name__", str(func))
            raise NotImplementedError(f"{name} draws random numbers that cannot be split by the rows of a batch")
        ours = _DRAWS.get(func)
        return func(*args, **(kwargs or {})) if ours is None else ours(self, *args, **(kwargs or {}))

    def dropout(self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        """As `torch.nn.functional.dropout`, never in place."""
        if not training or p == 0:
            return input
        if input.device.type == "cuda":
            kept = self._take(input, lambda whole: torch.native_dropout(whole.fill_(1), p, True)[1])
            return input * kept * (1 / (1 - p))
        kept = self._take(input, lambda whole: whole.bernoulli_(1 - p).bool())
        return input * kept.to(input.dtype).div_(1 - p)

    def attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        scale: float | None = None,
        **options: bool,
    ) -> Tensor:
        """As `torch.nn.functional.scaled_dot_product_attention`."""
        if dropout_p == 0:
            return functional.scaled_dot_product_attention(query, key, value, attn_mask, scale=scale, **options)
        if any(options.values()):
            raise NotImplementedError("causal or grouped attention with dropout is not known for rows of a batch")
        scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
        if attn_mask is not None:
            scores = scores.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
        return self.dropout(torch.softmax(scores, dim=-1), dropout_p) @ value

    def bernoulli(self, out: Tensor, p: float = 0.5, *, generator: None = None) -> Tensor:
        """As `Tensor.bernoulli_` with one probability."""
        return out.copy_(self._take(out, lambda whole: whole.bernoulli_(p).bool()))

    def rand(self, *size: Any, **options: Any) -> Tensor:
        """As `torch.rand`."""
        shape = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
        return self._take(torch.empty(shape, **options), lambda whole: whole.uniform_())

    def _take(self, part: Tensor, draw: Callable[[Tensor], Tensor]) -> Tensor:
        """Of the next draw the rows that belong to ``part``, whose shape and order in memory the draw has."""
        count = self._rows.stop - self._rows.start
        each, rest = divmod(len(part), count)
        if rest:
            raise NotImplementedError(f"{len(part)} random draws cannot be split by {count} rows of a batch")
        shape = (each * self._total, *part.shape[1:])
        if self._next == len(self._drawn):
            # Draws follow the order in memory.
            order = list(range(part.ndim))
            if not part.is_contiguous():
                order.sort(key=part.stride, reverse=True)
            self._drawn.append(draw(torch.empty_permuted(shape, order, dtype=part.dtype, device=part.device)))
        drawn = self._drawn[self._next]
        self._next += 1
        if drawn.shape != shape:
            raise NotImplementedError(f"chunks of a batch draw different numbers: {shape}, not {tuple(drawn.shape)}")
        return drawn[each * self._rows.start : each * self._rows.stop]


_DRAWS: Final[dict[Any, Callable[..., Tensor]]] = {
    functional.dropout: WholeBatchDraws.dropout,
    torch.dropout: WholeBatchDraws.dropout,
    functional.scaled_dot_product_attention: WholeBatchDraws.attention,
    Tensor.bernoulli_: WholeBatchDraws.bernoulli,
    torch.rand: WholeBatchDraws.rand,
}
_REFUSED: Final = frozenset(
    {
        *(torch.randn, torch.randint, torch.randperm, torch.normal, torch.bernoulli, torch.multinomial, torch.poisson),
        *(torch.rand_like, torch.randn_like, torch.randint_like, torch.native_dropout, torch.rrelu),
        *(functional.dropout1d, functional.dropout2d, functional.dropout3d, functional.gumbel_softmax),
        *(functional.alpha_dropout, functional.feature_alpha_dropout, functional.rrelu),
        *(Tensor.normal_, Tensor.uniform_, Tensor.random_, Tensor.exponential_, Tensor.geometric_, Tensor.log_normal_),
        *(Tensor.cauchy_, Tensor.bernoulli, Tensor.multinomial, torch.feature_dropout, torch.alpha_dropout),
    }
)
