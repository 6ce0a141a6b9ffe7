"""Two-stage ranking against a plain loop, with ties in both stages."""

import math

import pytest
import torch

from goal_sweep.goal_core.evaluation.recalls import reranked_ranks
from goal_sweep.goal_core.evaluation.retrieval import EmbeddingError, retrieval_ranks


@pytest.mark.parametrize("top", [1, 3, 10, 100])
def test_two_stage_ranks_are_those_of_a_plain_loop(top: int) -> None:
    generator = torch.Generator().manual_seed(top)
    images, texts = torch.randn(13, 4, generator=generator), torch.randn(40, 4, generator=generator)
    owners = torch.cat((torch.arange(13), torch.randint(0, 13, (27,), generator=generator)))
    scores = torch.randint(0, 4, (13, 40), generator=generator).float()  # many ties
    ranks = reranked_ranks(images, texts, owners, lambda i, t: scores[i, t], top, block=5)

    def rank(near: list[float], score: list[float], right: list[bool]) -> int:
        order = sorted(range(len(near)), key=lambda item: -near[item])
        front = order[:top]
        if not any(right[item] for item in front):
            first = next(place for place, item in enumerate(order) if right[item])
            return sum(not right[item] for item in order[:first])
        best = max(score[item] for item in front if right[item])
        return sum(score[item] >= best and not right[item] for item in front)

    near = (images @ texts.T).tolist()
    for image in range(13):
        right = [owner == image for owner in owners.tolist()]
        assert ranks.i2t[image] == rank(near[image], scores[image].tolist(), right)
    for text in range(40):
        right = [image == owners[text] for image in range(13)]
        assert ranks.t2i[text] == rank([row[text] for row in near], scores[:, text].tolist(), right)


def test_ties_count_against_the_model_in_both_stages() -> None:
    same, owners = torch.ones(6, 3), torch.arange(6)
    perfect = reranked_ranks(same, same, owners, lambda i, t: (i == t).float(), 2)
    assert perfect.i2t.tolist() == perfect.t2i.tolist() == [5] * 6  # a collapsed model chose no candidates
    everything = reranked_ranks(same, same, owners, lambda i, t: (i == t).float(), 6)
    assert everything.i2t.tolist() == everything.t2i.tolist() == [0] * 6
    apart = torch.eye(6)
    constant = reranked_ranks(apart, apart, owners, lambda i, t: torch.zeros(len(i)), 1)
    assert constant.i2t.tolist() == retrieval_ranks(apart, apart, owners).i2t.tolist() == [0] * 6
    level = reranked_ranks(apart, apart, owners, lambda i, t: torch.zeros(len(i)), 6)
    assert level.i2t.tolist() == level.t2i.tolist() == [5] * 6
    with pytest.raises(EmbeddingError, match="score is not finite"):
        reranked_ranks(apart, apart, owners, lambda i, t: torch.full((len(i),), math.nan), 2)


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [3, 0, 4, 1, 2]])
def test_wrong_items_tied_at_the_last_candidate_are_out_whatever_their_order(order: list[int]) -> None:
    """One is nearer than four others of equal similarity, of which a sort would let in any."""
    owners = torch.tensor(order)
    ranks = reranked_ranks(torch.eye(5), torch.eye(5)[owners], owners, lambda i, t: (i != owners[t]).float(), 3)
    assert ranks.i2t.tolist() == ranks.t2i.tolist() == [0] * 5
