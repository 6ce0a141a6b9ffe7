"""A fine-tuning step of VSE++, plain and with each option: its time, its memory, and how busy it keeps the device.

    python -m benchmarks.finetune [--backbone resnet50] [--size 112] [--batch 16]
    python -m benchmarks.finetune --device cuda --backbone resnet152 --size 224 --batch 128 --precision bf16

Every row is a process of its own. Busy means: the step's operations, counted by torch, divided by its time and by the
rate of a large matrix product in the same precision, measured beside it. torch does not count cuDNN's GRU, here less
than 1 %. Activation memory is the peak of a step less what is held before it.

`usual` is a training loop with the usual tools (benchmarks/usual.py), data loading included; the others leave loading
out. All rows run several times in turn, and the best time counts. From the second time on, compiled ones start with
the kernels that are on the disk already, as the second unit of a sweep does.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.machine import MIB, clock_of, held_bytes, in_own_process, peak_bytes, print_machine, wait_for
from benchmarks.step import CELL, drawn_images, first_rows, train_steps
from benchmarks.usual import apart as usual_apart
from goal_core.data import Batch
from goal_core.models import BackboneConfig, GruConfig, ModelConfig
from goal_core.training import StageConfig, UnitPlan
from goal_core.training.cells.trainer import CellTrainer

VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "usual": {},
    "unfused": {"fused": False},
    "channels_last": {"memory_format": "channels_last"},
    "recompute": {"recompute": True},
    "compiled": {"compiled": True},
    "channels_last, compiled": {"memory_format": "channels_last", "compiled": True},
}
"""What each row changes."""
DEFAULTS: Mapping[str, Any] = {"recompute": False, "compiled": False, "fused": True, "memory_format": "channels_first"}


def unit_of(options: argparse.Namespace) -> UnitPlan:
    """The unit of one cell that is measured."""
    stage = StageConfig(
        name="finetune", epochs=1, lr=1e-5, batch_size=options.batch, drop_last=True, recompute=options.recompute
    )
    return UnitPlan(
        trainings=(CELL,),
        data=drawn_images(options.batch * (options.steps + 1), options.size),
        model=ModelConfig(
            backbone=BackboneConfig(name=options.backbone, weights="random"),
            text=GruConfig(word_dim=300),
            embed_dim=options.embed_dim,
        ),
        seed=1,
        stage=stage,
        precision=options.precision,
        device=options.device,
        threads=options.threads,
        memory_format=options.memory_format,
        compiled=options.compiled,
    )


def measure(options: argparse.Namespace) -> dict[str, float]:
    """Milliseconds, operations and activation memory of a step, and seconds of the first one."""
    clock, seconds, found = clock_of(options.device, options.threads), [], {}

    def timed(cell: CellTrainer, take: Callable[..., None], inputs: Tensor, batch: Batch) -> None:
        if not found:
            for group in cell.optimizer.param_groups:
                group["fused"] = options.fused
            take(inputs[:2], first_rows(batch, 2))  # Adam's state
            began = time.perf_counter()
            before = held_bytes(options.device)
            peak_bytes(options.device, reset=True)
            take(inputs, batch)
            wait_for(options.device)
            found["mib"] = (peak_bytes(options.device) - before) / MIB
            found["first_s"] = time.perf_counter() - began
            if not options.compiled:  # whose operations torch cannot count
                with FlopCounterMode(display=False) as counter:
                    take(inputs, batch)
                found["flop"] = counter.get_total_flops()
        wait_for(options.device)
        began = clock()
        take(inputs, batch)
        wait_for(options.device)
        seconds.append(clock() - began)

    train_steps(unit_of(options), timed)
    return {**found, "ms": 1000 * min(seconds)}


def product_rate(options: argparse.Namespace) -> float:
    """Operations a second of a large matrix product in the precision of the step."""
    torch.set_num_threads(options.threads)
    dtype = torch.bfloat16 if options.precision == "bf16" else torch.float32
    one = torch.randn(options.product, options.product).to(options.device, dtype)
    clock, best = clock_of(options.device, options.threads), float("inf")
    for _ in range(10):
        wait_for(options.device)
        began = clock()
        one @ one
        wait_for(options.device)
        best = min(best, clock() - began)
    return 2 * options.product**3 / best


def apart(options: argparse.Namespace, changes: Mapping[str, Any], cache: str) -> dict[str, float]:
    """Measure in a process of its own."""
    given = {**vars(options), **DEFAULTS, **changes}
    environ = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache}
    return in_own_process("finetune", "--one", json.dumps(given), environ=environ)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="resnet50")
    for name, value in (("size", 112), ("batch", 16), ("embed-dim", 256), ("steps", 5), ("rounds", 2), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--product", type=int, default=2048, help="side of the matrices of the product")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--only", nargs="+", choices=tuple(VARIANTS), default=tuple(VARIANTS), help="rows, beside the plain one"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.only = list(dict.fromkeys(["plain", *options.only]))
    if options.one:
        print(json.dumps(measure(argparse.Namespace(**json.loads(options.one)))))
        return
    print_machine(options.device)
    rate = product_rate(options)
    print(
        f"{options.backbone} at {options.size} px, batch {options.batch}, D {options.embed_dim}, {options.precision}, "
        f"{options.device}, {options.threads} threads; a product of {options.product} x {options.product} runs at "
        f"{rate / 1e12:.3g} TFLOP/s"
    )
    with tempfile.TemporaryDirectory() as cache:
        rounds = [{name: row(options, name, cache) for name in options.only} for _ in range(options.rounds)]
    plain = min((one["plain"] for one in rounds), key=lambda one: one["ms"])
    for name in options.only:
        best = min((one[name] for one in rounds), key=lambda one: one["ms"])
        line = f"{name:24}{best['ms']:9.1f} ms, {best['ms'] / plain['ms']:5.2f} of plain"
        if name != "usual":
            starts = " and ".join(f"{one[name]['first_s']:.1f}" for one in rounds)
            busy, mib = plain["flop"] / (best["ms"] / 1000) / rate, rounds[0][name]["mib"]
            line += (
                f", {100 * busy:5.1f} % busy, {mib:6.0f} MiB of activations ({mib / rounds[0]['plain']['mib']:.2f}), "
                f"first step after {starts} s"
            )
        print(line)


def row(options: argparse.Namespace, name: str, cache: str) -> dict[str, float]:
    """Measure one row once."""
    if name != "usual":
        return apart(options, VARIANTS[name], cache)
    unit = unit_of(argparse.Namespace(**{**vars(options), **DEFAULTS}))
    return {"ms": usual_apart(unit, options.steps)["step_ms"]}


if __name__ == "__main__":
    main()
