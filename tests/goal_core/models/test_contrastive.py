"""X-VLM's contrastive loss against a plain loop."""

from __future__ import annotations

import math

import pytest
import torch

from goal_sweep.goal_core.models.systems.xvlm import contrastive_loss


def test_it_is_that_of_a_plain_loop_in_which_pairs_of_an_image_share_the_right_answer() -> None:
    generator = torch.Generator().manual_seed(1)
    images, texts = (torch.nn.functional.normalize(torch.randn(5, 4, generator=generator), dim=1) for _ in range(2))
    ids = torch.tensor([7, 3, 7, 1, 7])
    logits = [[float(images[i] @ texts[j]) / 0.07 for j in range(5)] for i in range(5)]
    total = 0.0
    for i in range(5):
        right = [j for j in range(5) if ids[j] == ids[i]]
        row, column = logits[i], [logits[j][i] for j in range(5)]
        for scores in (row, column):
            rest = math.log(sum(math.exp(score) for score in scores))
            total += sum(rest - scores[j] for j in right) / len(right) / 5 / 2
    assert float(contrastive_loss(images, texts, ids, torch.tensor(0.07))) == pytest.approx(total, rel=1e-5)
