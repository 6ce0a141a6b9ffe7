"""A batch in chunks: the gradient, the random numbers and the training of the whole batch."""

import gc
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.goal_core.models.batch_rows import WholeBatchDraws
from goal_sweep.goal_core.training import StageConfig
from goal_sweep.goal_core.training.train import train_unit
from tests.helpers import training_cases as cases

CASES = {
    "vsepp frozen": (cases.MODEL, cases.DATA, replace(cases.FROZEN, warmup_epochs=0)),
    "vsepp warm-up": (cases.MODEL, cases.DATA, cases.FROZEN),
    "vsepp": (cases.MODEL, cases.DATA, cases.FINETUNE),
    "vse_infty": (cases.GRID, cases.GRID_DATA, cases.TRAINED),
    "xvlm": (cases.XVLM, cases.XVLM_DATA, cases.XVLM_DROPS),
}


@pytest.mark.parametrize("size", [5, *(pytest.param(size, marks=pytest.mark.exhaustive) for size in (1, 8))])
@pytest.mark.parametrize("name", CASES)
def test_chunks_have_the_gradient_of_the_whole_batch(name: str, size: int, monkeypatch, tmp_path: Path):
    model, data, stage = CASES[name]
    unit = cases.unit_of("sig-ms/cir", stage=stage, model=model, data=data)
    whole, state, logged = cases.first_step(monkeypatch, tmp_path / "whole", unit)
    unit = replace(unit, stage=replace(stage, micro_batch=size))
    parts, part_state, part_logged = cases.first_step(monkeypatch, tmp_path / "parts", unit)
    assert len(parts) == len(whole) > 5
    scale = max(float(gradient.abs().max()) for gradient in whole)
    assert scale > 0
    for part, gradient in zip(parts, whole, strict=True):
        torch.testing.assert_close(part, gradient, rtol=1e-4, atol=5e-5 * scale)
    assert torch.equal(part_state, state)
    assert part_logged == pytest.approx(logged, rel=1e-4)


def test_a_killed_training_in_chunks_ends_as_the_unbroken_one(tmp_path: Path) -> None:
    stage = replace(cases.TRAINED, micro_batch=8, epochs=1, checkpoint_every=1)
    unit = cases.unit_of("con/con", stage=stage, model=cases.GRID, data=cases.GRID_DATA)
    unbroken, killed = cases.folders_of(unit, tmp_path / "unbroken"), cases.folders_of(unit, tmp_path / "killed")
    train_unit(unit, unbroken)
    cases.train_killed(unit, killed, 1)
    assert killed["con-con"].numbers() == unbroken["con-con"].numbers()


def test_whole_batch_statistics_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="micro_batch needs bn_mode frozen_eval"):
        StageConfig(name="frozen", epochs=1, lr=1.0, micro_batch=4, bn_mode="legacy_quirk")
    with pytest.raises(ConfigError, match="micro_batch must be at least 0"):
        StageConfig(name="frozen", epochs=1, lr=1.0, micro_batch=-1)


PARTS = (slice(0, 3), slice(3, 6), slice(6, 7))


def draw(function: Callable[[Tensor], Tensor], part: Tensor, rows: slice, total: int) -> Tensor:
    torch.manual_seed(3)
    with WholeBatchDraws(rows, total, []):
        return function(part)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: functional.dropout(x, 0.3),
        lambda x: functional.dropout(x.transpose(1, 2), 0.3),
        lambda x: functional.dropout(functional.dropout(x, 0.1), 0.3, inplace=True),
        lambda x: functional.dropout(x.flatten(0, 1), 0.3).unflatten(0, x.shape[:2]),
        lambda x: x * x.new_empty((len(x), 1, 1)).bernoulli_(0.5),
        lambda x: x * torch.rand(len(x), 1, 1) * torch.rand((len(x), 1, 1)) * torch.rand(x.shape),
        lambda x: functional.scaled_dot_product_attention(x, x, x, dropout_p=0.4),
        lambda x: functional.scaled_dot_product_attention(x, x, x, x > 0, dropout_p=0.4, scale=2.0),
        lambda x: functional.scaled_dot_product_attention(x, x, x, dropout_p=0.0, is_causal=True),
    ],
)
def test_rows_draw_what_the_whole_batch_draws(function: Callable[[Tensor], Tensor]) -> None:
    batch = torch.randn(7, 4, 4, generator=torch.Generator().manual_seed(0))
    batch[:, 0] = batch[:, 0].abs() + 0.1  # no row of the mask above is empty
    batch = torch.where(torch.eye(4).bool(), batch.abs() + 0.1, batch)
    torch.manual_seed(3)
    whole = function(batch)
    state = torch.get_rng_state()
    for rows in PARTS:
        torch.testing.assert_close(draw(function, batch[rows], rows, 7), whole[rows])
        assert torch.equal(torch.get_rng_state(), state)


def test_draws_that_no_row_owns_are_refused() -> None:
    with pytest.raises(NotImplementedError, match="randn draws random numbers"):
        draw(lambda x: x + torch.randn(x.shape), torch.ones(2, 3), slice(0, 2), 4)
    with pytest.raises(NotImplementedError, match="3 random draws cannot be split by 2 rows"):
        draw(lambda x: x + torch.rand(3), torch.ones(2, 3), slice(0, 2), 4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_chunks_on_a_gpu_have_the_gradient_of_the_whole_batch_and_less_memory(monkeypatch, tmp_path: Path):
    model, data, stage = CASES["vsepp"]
    gradients, peaks, noted, clip = {}, {}, list[int](), nn.utils.clip_grad_norm_

    def note(parameters: Iterable[nn.Parameter], max_norm: float) -> Tensor:
        noted.append(torch.cuda.max_memory_allocated())  # before Adam's state, which is larger than these activations
        return clip(parameters, max_norm)

    monkeypatch.setattr(nn.utils, "clip_grad_norm_", note)
    for size in (0, 5, 0, 5):  # the first run of a size also takes what libraries keep, and try out
        unit = cases.unit_of(
            "sig-ms/cir", stage=replace(stage, micro_batch=size), model=model, data=data, device="cuda"
        )
        gc.collect()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        gradients[size], _, _ = cases.first_step(monkeypatch, tmp_path / f"{size}-{len(noted)}", unit)
        peaks[size] = noted[-1] - held
    scale = max(float(one.abs().max()) for one in gradients[0])
    for part, whole in zip(gradients[5], gradients[0], strict=True):
        torch.testing.assert_close(part, whole, rtol=1e-3, atol=1e-4 * scale)
    assert peaks[5] < peaks[0]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_dropout_of_rows_on_a_gpu_is_that_of_the_whole_batch() -> None:
    batch = torch.ones(7, 40, 8, device="cuda")
    torch.manual_seed(3)
    whole = functional.dropout(batch, 0.3)
    for rows in PARTS:
        assert torch.equal(draw(lambda x: functional.dropout(x, 0.3), batch[rows], rows, 7), whole[rows])
