"""What `micro_batch` costs and saves: memory and time of a finetune step, whole and in chunks.

    python -m benchmarks.micro_batch [--backbone resnet18] [--size 112] [--batch 64]

Activation memory is the peak of a step less what the process holds before it (weights, gradients, optimiser). Each row
is a process of its own, because a process does not return memory, and on a CPU with one thread seconds are those of the
processor, so that other work on the machine counts little. The last rows let the batch grow at one micro_batch, on a
small model: their memory should stay flat but for the pixels and the embeddings.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence

from torch import Tensor

from benchmarks.machine import MIB, clock_of, held_bytes, in_own_process, peak_bytes, print_machine, wait_for
from benchmarks.step import CELL, drawn_images, first_rows, train_steps
from goal_core.data import Batch
from goal_core.models import BackboneConfig, BertConfig, GruConfig, ModelConfig, XvlmConfig
from goal_core.training import StageConfig, UnitPlan
from goal_core.training.cells.trainer import CellTrainer


def measure(options: argparse.Namespace) -> dict[str, float]:
    """Seconds and activation memory of a step."""
    model = ModelConfig(
        framework=options.framework,
        backbone=BackboneConfig(name=options.backbone, weights="random"),
        text=GruConfig(word_dim=64),
        bert=BertConfig(weights="random", layers=4, width=256, heads=4),
        xvlm=XvlmConfig(fusion_layer=2),
        embed_dim=256,
    )
    stage = StageConfig(
        name="finetune", epochs=1, lr=1e-4, batch_size=options.batch, micro_batch=options.micro, drop_last=True
    )
    unit = UnitPlan(
        trainings=(CELL,),
        data=drawn_images(2 * options.batch, options.size),
        model=model,
        seed=1,
        stage=stage,
        device=options.device,
        threads=options.threads,
    )
    seconds: list[float] = []
    memory: list[int] = []
    clock = clock_of(options.device, options.threads)

    def timed(cell: CellTrainer, take: Callable[..., None], inputs: Tensor, batch: Batch) -> None:
        if not memory:  # Adam's state first, with a batch too small to count
            take(inputs[:2], first_rows(batch, 2))
        before = held_bytes(options.device)
        peak_bytes(options.device, reset=True)
        wait_for(options.device)
        began = clock()
        take(inputs, batch)
        wait_for(options.device)
        seconds.append(clock() - began)
        memory.append(peak_bytes(options.device) - before)

    train_steps(unit, timed)
    return {"seconds": min(seconds), "mib": memory[0] / MIB}


def apart(options: argparse.Namespace, **changes: object) -> dict[str, float]:
    """Measure in a process of its own."""
    settings = {**vars(options), **changes}
    flags = [f"--{name}={value}" for name, value in settings.items() if name not in ("one", "parts")]
    return in_own_process("micro_batch", "--one", *flags)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--framework", default="vsepp", help="or vse_infty, xvlm: these have dropout")
    parser.add_argument("--backbone", default="resnet18")
    parser.add_argument("--size", type=int, default=112, help="side of the images, pixels")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--micro", type=int, default=0)
    parser.add_argument("--parts", type=int, nargs="+", default=[2, 4, 8, 16], help="numbers of chunks")
    parser.add_argument("--largest", type=int, default=4096, help="largest batch of the growing ones")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(measure(options)))
        return
    print_machine(options.device)
    print(f"{options.framework}, {options.backbone} at {options.size} px, {options.device}, {options.threads} threads")
    whole = apart(options)
    print(f"batch {options.batch:5} at once       {whole['seconds']:7.2f} s  {whole['mib']:8.0f} MiB of activations")
    for parts in options.parts:
        found = apart(options, micro=options.batch // parts)
        print(
            f"batch {options.batch:5} in {parts:3} chunks {found['seconds']:7.2f} s  {found['mib']:8.0f} MiB   "
            f"{found['seconds'] / whole['seconds']:.2f} of the time, {found['mib'] / whole['mib']:.3f} of the memory"
        )
    print("growing batch of micro_batch 32 on test_resnet at 32 px")
    batch = 64
    while batch <= options.largest:
        found = apart(options, framework="vsepp", backbone="test_resnet", size=32, batch=batch, micro=32)
        print(
            f"batch {batch:5}  {found['seconds']:7.2f} s, {1000 * found['seconds'] / batch:.2f} ms a pair, "
            f"{found['mib']:6.0f} MiB"
        )
        batch *= 4


if __name__ == "__main__":
    main()
