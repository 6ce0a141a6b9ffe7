"""Contrastive losses beside the grid: their gradients are those of the formulas, and they train like any objective."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, logsigmoid, normalize

from goal_sweep.goal_core.basics.errors import ConfigError, UnknownNameError
from goal_sweep.goal_core.objectives import LOSS, ObjectiveConfig, baselines, list_objectives
from goal_sweep.goal_core.training.train import train_unit
from tests.helpers.statistics import numbers_of
from tests.helpers.training_cases import FROZEN, folders_of, same_weights, unit_of


def infonce(scores: Tensor) -> Tensor:
    right = torch.arange(len(scores))
    both = (cross_entropy(logits, right, reduction="sum") for logits in (scores / 0.07, scores.T / 0.07))
    return torch.stack(list(both)).sum()


def sigmoid(scores: Tensor) -> Tensor:
    signs = 2 * torch.eye(len(scores)) - 1
    return -logsigmoid(signs * (scores / 0.1 - 10)).sum()


@pytest.mark.parametrize("loss", [infonce, sigmoid], ids=["infonce", "sigmoid"])
@pytest.mark.parametrize("same_image", [False, True])
def test_the_gradient_is_that_of_the_loss(loss: Callable[[Tensor], Tensor], same_image: bool) -> None:
    """With two pairs of one image each has the other left out, which is as without the other's row or column."""
    generator, name = torch.Generator().manual_seed(0), loss.__name__
    images, texts = (normalize(torch.randn(6, 5, generator=generator), dim=1).requires_grad_() for _ in range(2))
    objective = ObjectiveConfig(pair=name, triplet=LOSS).build()
    ids = torch.tensor([0, 1, 2, 3, 4, 4]) if same_image else None
    value, stats = objective.forward_with_stats(images, texts, ids)
    found = torch.autograd.grad(3 * value, (images, texts))
    scores = images @ texts.T
    if same_image:
        out = torch.zeros(6, 6, dtype=torch.bool)
        out[4, 5] = out[5, 4] = True
        scores = scores.masked_fill(out, -1e9)
    wanted = torch.autograd.grad(3 * loss(scores), (images, texts))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    (numbers,) = numbers_of(stats)
    assert numbers["grad_norm"] == pytest.approx(float(torch.hypot(*(one.norm() for one in wanted))) / 3, rel=1e-4)
    assert numbers["hinge"] == pytest.approx(float(value.detach()))
    assert not {"triplet_weight", "pos_weight"} & numbers.keys()


@pytest.mark.parametrize(
    ("name", "scale", "used"), [("infonce", 3.0, 3.0), ("infonce", 6.0, math.log(100)), ("sigmoid", 6.0, 6.0)]
)
def test_a_model_brings_its_temperature_and_trains_it(name: str, scale: float, used: float) -> None:
    """CLIP's up to its limit, to which it is brought back."""
    generator = torch.Generator().manual_seed(0)
    images, texts = (normalize(torch.randn(5, 4, generator=generator), dim=1).requires_grad_() for _ in range(2))
    own = {"temperature": nn.Parameter(torch.tensor([scale])), "bias": nn.Parameter(torch.tensor([-2.0]))}
    config = ObjectiveConfig(pair=name, triplet=LOSS).of_model()
    assert set(config.params.values()) == {"model"}
    objective = config.build(own=own)
    brought = [own[key] for key in config.params]
    value = objective(images, texts)
    found = torch.autograd.grad(value, (images, texts, *brought))
    assert own["temperature"].item() == pytest.approx(used)
    logits, signs = images @ texts.T * own["temperature"].exp(), 2 * torch.eye(5) - 1
    right = torch.arange(5)
    loss = {
        "infonce": cross_entropy(logits, right, reduction="sum") + cross_entropy(logits.T, right, reduction="sum"),
        "sigmoid": -logsigmoid(signs * (logits + own["bias"])).sum(),
    }[name]
    wanted = torch.autograd.grad(loss, (images, texts, *brought))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
    fixed = config.build(own={key: tensor.detach() for key, tensor in own.items()})
    assert torch.equal(torch.autograd.grad(fixed(images, texts), images)[0], found[0])


def test_without_a_bias_the_sigmoid_loss_keeps_its_own_numbers() -> None:
    objective = ObjectiveConfig(pair="sigmoid", triplet=LOSS).of_model().build(own={"temperature": torch.tensor(4.6)})
    assert objective.params == {"temperature": 0.1, "bias": -10.0}
    given = ObjectiveConfig(pair="infonce", triplet=LOSS, params={"temperature": 0.05})
    assert given.of_model() == given
    assert ObjectiveConfig(pair="con", triplet="con").of_model().params == {}


def test_they_have_names_and_parameters_and_are_no_part_of_the_grid() -> None:
    config = ObjectiveConfig(pair="infonce", triplet=LOSS, params={"temperature": 0.01})
    assert config.name == "infonce"
    assert config.resolved() == {"pair": "infonce", "triplet": LOSS, "temperature": 0.01}
    assert not set(baselines) & {info.pair for info in list_objectives()}
    assert all(entry.is_built_in for entry in baselines.values())
    for pair, triplet in (("con", LOSS), ("infonce", "con")):
        with pytest.raises(UnknownNameError):
            ObjectiveConfig(pair=pair, triplet=triplet)
    with pytest.raises(ConfigError, match="temperature"):
        ObjectiveConfig(pair="sigmoid", triplet=LOSS, params={"temperature": 0.0})


@pytest.mark.parametrize("sharing", ["trunk", "heads"])
def test_they_train_beside_the_grid_as_alone(sharing: str, tmp_path: Path) -> None:
    """In a stack too: they take their steps beside it."""
    names = ("con/con", "sig-ms/cir", "infonce/loss", "sigmoid/loss")
    unit = unit_of(*names, stage=replace(FROZEN, epochs=2, warmup_epochs=0, lr_drops=()), sharing=sharing)
    shared, alone = folders_of(unit, tmp_path / "shared"), folders_of(unit, tmp_path / "alone")
    train_unit(unit, shared)
    for plan in unit.trainings[2:]:
        train_unit(replace(unit, trainings=(plan,)), alone)
        assert same_weights(shared[plan.key], alone[plan.key])
    assert f"path {sharing}: " in (shared["con-con"].root / "log.txt").read_text()
