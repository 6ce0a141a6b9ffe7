"""X-VLM's parts against plain loops, and its full size against the published counts."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest
import torch
from torch import nn

from goal_sweep.goal_core.models import BackboneConfig, BertConfig, ModelConfig, XvlmConfig
from goal_sweep.goal_core.models.backbones import build_backbone
from goal_sweep.goal_core.models.systems.xvlm import XvlmHeads, contrastive_loss, draw_negatives

TINY = ModelConfig(
    framework="xvlm",
    backbone=BackboneConfig(name="swin_mini_patch8_window4", weights="random"),
    embed_dim=6,
    bert=BertConfig(weights="random", layers=3, width=8, heads=2),
    xvlm=XvlmConfig(fusion_layer=1, rerank_top=2, objective_weight=0.5, objective_scale=10),
)
FULL = ModelConfig(
    framework="xvlm",
    backbone=BackboneConfig(name="swin_base_patch4_window12_384", weights="random"),
    embed_dim=256,
    bert=BertConfig(weights="random"),
)


@pytest.fixture(scope="module")
def full_size() -> XvlmHeads:
    with torch.device("meta"):
        return XvlmHeads(FULL, num_features=1024, vocab_size=30_522, seed=1)


def tiny_heads() -> XvlmHeads:
    heads = XvlmHeads(TINY, num_features=5, vocab_size=20, seed=1).eval()
    with torch.no_grad():  # larger weights, so that every part shows in the output
        for parameter in heads.parameters():
            generator = torch.Generator().manual_seed(parameter.numel())
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return heads


def test_full_size_heads_have_the_published_number_of_weights(full_size: XvlmHeads) -> None:
    layer = 12 * 768**2 + 13 * 768
    looking = 2 * (768**2 + 768) + 2 * (1024 * 768 + 768) + 2 * 768
    bert = (30_522 + 512 + 2 + 2) * 768 + 12 * layer + 6 * looking
    projections = 1025 * 256 + 769 * 256
    matching = 769 * 1536 + 2 * 1536 + 1536 * 2 + 2
    assert sum(parameter.numel() for parameter in full_size.parameters()) == bert + projections + matching


def test_biases_norms_and_position_tables_do_not_decay(full_size: XvlmHeads) -> None:
    groups = {group.name: group for group in full_size.parameter_groups(0.5)}
    assert {name: (group.lr_scale, group.decay) for name, group in groups.items()} == {
        "heads": (1.0, True),
        "heads without decay": (1.0, False),
        "bert": (0.5, True),
        "bert without decay": (0.5, False),
    }
    listed = [id(parameter) for group in groups.values() for parameter in group.parameters]
    assert sorted(listed) == sorted(id(parameter) for parameter in full_size.parameters())
    names = {id(parameter): name for name, parameter in full_size.named_parameters()}
    for group in groups.values():
        for parameter in group.parameters:
            name = names[id(parameter)]
            assert group.decay == (name.endswith("weight") and "Norm" not in name and name != "itm_head.1.weight")
    assert [names[id(p)] for p in groups["heads"].parameters] == [
        *("vision_proj.weight", "text_proj.weight", "itm_head.0.weight", "itm_head.3.weight")
    ]
    backbone = build_backbone(TINY.backbone, image_size=64, seed=1, cells=True)
    matrices, plain = full_size.backbone_groups(backbone, 0.25)
    kept = set(map(id, matrices.parameters))
    decaying = {name for name, parameter in backbone.named_parameters() if id(parameter) in kept}
    assert all(name.endswith(".weight") and "norm" not in name for name in decaying)
    others = {name.split(".")[-1] for name, _ in backbone.named_parameters() if name not in decaying}
    assert others == {"weight", "bias", "relative_position_bias_table"}
    assert len(plain.parameters) + len(kept) == len(list(backbone.parameters()))
    assert (matrices.decay, plain.decay, matrices.lr_scale, plain.lr_scale) == (True, False, 0.25, 0.25)


def test_the_contrastive_loss_is_that_of_a_plain_loop_in_which_pairs_of_an_image_share_the_right_answer() -> None:
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


def attend(attention: Any, asking: torch.Tensor, told: torch.Tensor) -> torch.Tensor:
    """Post-norm attention of one caption, (L, W), head by head."""
    inner, heads = attention.self, 2
    query, key, value = inner.query(asking), inner.key(told), inner.value(told)
    size = query.shape[1] // heads
    mixed = []
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        weights = torch.softmax(query[:, part] @ key[:, part].T / math.sqrt(size), dim=1)
        mixed.append(weights @ value[:, part])
    answered: torch.Tensor = attention.output.LayerNorm(attention.output.dense(torch.cat(mixed, dim=1)) + asking)
    return answered


def match_by_hand(heads: XvlmHeads, image_RF: torch.Tensor, states_LW: torch.Tensor) -> torch.Tensor:
    """Both logits of one pair."""
    states, layers = states_LW, cast(Any, heads.cross.encoder).layer
    for layer in layers:
        states = attend(layer.crossattention, attend(layer.attention, states, states), image_RF)
        inner = nn.functional.gelu(layer.intermediate.dense(states))
        states = layer.output.LayerNorm(layer.output.dense(inner) + states)
    logits: torch.Tensor = heads.itm_head(states[0])
    return logits


def test_the_cross_encoder_is_that_of_a_plain_loop_and_ignores_padding() -> None:
    heads = tiny_heads()
    generator = torch.Generator().manual_seed(2)
    features = torch.randn(4, 3, 5, generator=generator)
    lengths = torch.tensor([6, 2, 6, 4])
    tokens = torch.randint(5, 20, (4, 6), generator=generator) * (torch.arange(6) < lengths[:, None])
    with torch.no_grad():
        images, states = heads.image_tokens(features), heads.text_states(tokens, lengths)
        assert torch.equal(images[:, 0], features.mean(dim=1))
        assert torch.equal(images[:, 1:], features)
        scores = heads.match(images, states, lengths)
        alone = [match_by_hand(heads, images[row], states[row, : lengths[row]])[1] for row in range(4)]
        torch.testing.assert_close(scores, torch.stack(alone), rtol=1e-4, atol=1e-5)
        whole = torch.tensor([6, 6, 6, 6])  # without padding there is no mask; the layers still read both ways
        full = heads.match(images, states, whole)
        alone = [match_by_hand(heads, images[row], states[row])[1] for row in range(4)]
        torch.testing.assert_close(full, torch.stack(alone), rtol=1e-4, atol=1e-5)
        one = heads.encode_texts(tokens[1:2, :2], lengths[1:2])
        torch.testing.assert_close(heads.encode_texts(tokens, lengths)[1:2], one, rtol=1e-4, atol=1e-5)
        assert torch.equal(heads.encode_images(features), heads.embed_images(images))


def test_the_loss_is_that_of_a_plain_loop_and_the_objective_is_weighed() -> None:
    heads = tiny_heads()
    generator = torch.Generator().manual_seed(3)
    features, ids = torch.randn(5, 3, 5, generator=generator), torch.tensor([0, 0, 1, 2, 3])
    lengths = torch.tensor([4, 3, 4, 2, 4])
    tokens = torch.randint(5, 20, (5, 4), generator=generator) * (torch.arange(4) < lengths[:, None])
    pairs = heads.forward_pairs(features, None, tokens, lengths)
    surrogate = torch.tensor(7.0, requires_grad=True)
    torch.manual_seed(11)
    loss, extra = heads.total_loss(surrogate, pairs, ids)
    loss.backward()
    assert surrogate.grad is not None
    assert float(surrogate.grad) == pytest.approx(0.5 * 10 / (2 * 5))  # weight x scale / 2 B
    assert heads.temperature.grad is None

    torch.manual_seed(11)
    drawn = []
    for similarity in ((pairs.text_BD @ pairs.image_BD.T), (pairs.image_BD @ pairs.text_BD.T)):
        chances = torch.zeros(5, 5)
        for row in range(5):
            exponents = [math.exp(float(value) / 0.07) for value in similarity[row].tolist()]
            for column in range(5):
                if ids[row] != ids[column]:
                    chances[row, column] = exponents[column] / sum(exponents) + 1e-5
        drawn.append(torch.multinomial(chances, 1)[:, 0].tolist())
    rows = [(i, i, 1) for i in range(5)]
    rows += [(drawn[0][i], i, 0) for i in range(5)] + [(i, drawn[1][i], 0) for i in range(5)]
    (tokens, states, _), total, right = pairs.context, 0.0, 0
    with torch.no_grad():
        for image, text, label in rows:
            logits = match_by_hand(heads, tokens[image], states[text, : lengths[text]])
            total -= float(torch.log_softmax(logits, dim=0)[label]) / len(rows)
            right += int(logits.argmax()) == label
    assert extra == {"itm": pytest.approx(total, rel=1e-4), "itm_accuracy": pytest.approx(right / 15)}
    assert float(loss.detach()) == pytest.approx(0.5 * 10 / (2 * 5) * 7.0 + total, rel=1e-4)


def test_negatives_are_never_of_the_same_image_and_the_near_ones_come_most() -> None:
    ids = torch.tensor([4, 4, 7, 9])
    similarity = torch.tensor([[0.9, 0.9, 0.1, 0.3], [0.0, 0.0, 0.5, 0.5], [0.2, 0.2, 1.0, -1.0], [1.0, 1.0, 1.0, 1.0]])
    torch.manual_seed(0)
    counts = torch.zeros(4, 4)
    for _ in range(3000):
        negative, there = draw_negatives(similarity, ids, torch.tensor(0.07))
        assert there.all()
        counts[torch.arange(4), negative] += 1
    assert counts[0, :2].tolist() == counts[1, :2].tolist() == [0, 0]
    assert counts[2, 2] == counts[3, 3] == 0
    chances = (torch.softmax(similarity[0] / 0.07, dim=0) + 1e-5)[2:]  # the own image's are left out, not made up for
    assert float(counts[0, 3] / 3000) == pytest.approx(float(chances[1] / chances.sum()), abs=0.02)
    assert float(counts[3, 0] / 3000) == pytest.approx(1 / 3, abs=0.03)


def test_a_pair_without_a_negative_does_not_count() -> None:
    alone = torch.tensor([1, 1])
    negative, there = draw_negatives(torch.eye(2), alone, torch.tensor(0.07))
    assert (negative.tolist(), there.tolist()) == ([0, 1], [False, False])
    heads = tiny_heads()
    pairs = heads.forward_pairs(torch.randn(2, 3, 5), None, torch.full((2, 3), 7), torch.tensor([3, 3]))
    loss, extra = heads.total_loss(torch.zeros(()), pairs, alone)
    assert torch.isfinite(loss)
    assert 0 <= extra["itm_accuracy"] <= 1
