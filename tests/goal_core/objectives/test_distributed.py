"""Gathered negatives: the parameters' gradient does not depend on the number of processes."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import torch
from torch import Tensor, distributed
from torch.multiprocessing.spawn import spawn
from torch.nn.functional import normalize

from goal_sweep.goal_core.objectives import GradientObjective, ShapeError, gather_batch

COMBINATIONS = [("con", "con"), ("lin-ms", "nca"), ("sig-ms", "cir")]


def model() -> torch.nn.ModuleList:
    torch.manual_seed(0)
    return torch.nn.ModuleList([torch.nn.Linear(7, 5), torch.nn.Linear(7, 5)]).double()


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return *torch.randn(2, 12, 7, generator=generator, dtype=torch.float64), torch.arange(12) // 2


def loss(layers: torch.nn.ModuleList, rows: slice, pair: str, triplet: str, reduction: str) -> Tensor:
    images, texts, ids = inputs()
    emb = [normalize(layer(x[rows])) for layer, x in zip(layers, (images, texts), strict=True)]
    objective = GradientObjective(pair=pair, triplet=triplet)
    return objective(*gather_batch(emb[0], emb[1], ids[rows], reduction=reduction))  # type: ignore[arg-type]


def parameter_gradients(layers: torch.nn.ModuleList) -> Tensor:
    return torch.cat([p.grad.flatten() for p in layers.parameters() if p.grad is not None])


def worker(rank: int, port: int, folder: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    results = []
    for pair, triplet in COMBINATIONS:
        for reduction in ("mean", "sum"):
            layers = model()
            loss(layers, slice(6 * rank, 6 * rank + 6), pair, triplet, reduction).backward()
            total = parameter_gradients(layers)
            distributed.all_reduce(total)
            results.append(total / (2 if reduction == "mean" else 1))
    try:
        emb = torch.ones(3 + rank, 2)
        gather_batch(emb, emb)
    except ShapeError as error:
        results.append(torch.tensor(float("[3, 2, 0], [4, 2, 0]" in str(error))))
    if rank == 0:
        torch.save(results, folder + "/results.pt")
    distributed.destroy_process_group()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_without_processes_the_batch_comes_back_as_it_is() -> None:
    images, texts, ids = inputs()
    assert all(a is b for a, b in zip(gather_batch(images, texts, ids), (images, texts, ids), strict=True))


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path: Path) -> None:
    spawn(worker, args=(free_port(), str(tmp_path)), nprocs=2)
    results = torch.load(tmp_path / "results.pt", weights_only=True)
    expected = []
    for pair, triplet in COMBINATIONS:
        layers = model()
        loss(layers, slice(None), pair, triplet, "mean").backward()
        expected += [parameter_gradients(layers)] * 2
    assert len(results) == 7
    for actual, wanted in zip(results[:6], expected, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=1e-12, atol=1e-12)
    assert results[6] == 1
