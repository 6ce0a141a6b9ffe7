"""All benchmarks, or those that are named, one after the other, each in a process of its own.

    python -m benchmarks [--device cuda] [--quick] [NAME ...]
    python -m benchmarks.NAME --help

Those of goal_core need its dependencies alone. The others say in one line what is missing, and are left out. `--quick`
only shows that they run: its figures mean nothing.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SWEEPS = ("pydantic", "ruamel.yaml")
"""What the packages `sweeps` and `runners` import beside goal_core's dependencies."""


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One program."""

    what: str
    quick: str
    """Arguments with which it takes seconds."""
    full: str = ""
    """Arguments of a whole run, beside its defaults."""
    cuda: str | None = ""
    """Further arguments on a GPU; None if it uses no device."""
    needs: tuple[str, ...] = ()
    """Modules beside goal_core's dependencies."""


BENCHMARKS = {
    "objectives": Benchmark(
        what="an objective, alone and stacked, against its one product and autograd losses",
        quick="--batch 16 --dim 8 --rounds 1",
        cuda="--batch 128 1024 4096 32768",
    ),
    "recall": Benchmark(
        what="recall 5K and 5 x 1K against the one product and numpy", quick="--images 50 --dims 8 --repeats 1"
    ),
    "sharing": Benchmark(
        what="1 to 45 cells in a unit, in each mode of sharing, against a process for each cell",
        quick="--cells 1 2 --steps 2 --batch 4 --size 32 --embed-dim 8 --word-dim 8",
        full="--cells 1 2 4 8 15 45",
        cuda="--backbone resnet152 --size 224 --batch 128 --embed-dim 1024 --precision bf16 --steps 30",
    ),
    "micro_batch": Benchmark(
        what="memory and time of a batch in chunks, and batches of 64 to 4,096 pairs",
        quick="--backbone test_resnet --size 32 --batch 8 --parts 2 --largest 64",
        cuda="--backbone resnet50 --size 224 --batch 256",
    ),
    "finetune": Benchmark(
        what="a fine-tuning step and its options against the device's matrix products",
        quick="--backbone test_resnet --size 32 --batch 4 --steps 2 --product 64 --rounds 1 --only usual recompute",
        cuda="--backbone resnet152 --size 224 --batch 128 --embed-dim 1024 --precision bf16 --steps 20 --product 8192",
    ),
    "epochs": Benchmark(what="memory after each of many epochs, which should stay flat", quick="--epochs 3 --cells 1"),
    "data_path": Benchmark(
        what="images from the disk to the model",
        quick="--images 32 --size 32 --backbone test_resnet --backbone-size 32 --largest 10000",
        cuda=None,
    ),
    "verification": Benchmark(what="what checksums cost", quick="--steps 2 --batch 8 --embed-dim 8 --word-dim 8"),
    "orchestration": Benchmark(
        what="what the driver of a launch costs per event",
        quick="--trainings 15 --machines 4",
        cuda=None,
        needs=(*SWEEPS, "ray", "mlflow", "rich"),
    ),
    "report": Benchmark(
        what="reading and reporting ten thousand runs",
        quick="--runs 30 --blocks 1 --epochs 1",
        cuda=None,
        needs=("mlflow", "matplotlib", "jinja2", "scipy"),
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks and return the number of those that failed."""
    names = [name for name in BENCHMARKS if Path(__file__).with_name(f"{name}.py").exists()]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"{name:14} {BENCHMARKS[name].what}" for name in names),
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--quick", action="store_true", help="only show that they run")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.names if name not in names]:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(names)}")
    failed = [name for name in given.names or names if not run(name, given.device, quick=given.quick)]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return len(failed)


def run(name: str, device: str, *, quick: bool) -> bool:
    """Run one benchmark, or say why not. Returns whether nothing failed."""
    benchmark = BENCHMARKS[name]
    print(f"\n== {name}: {benchmark.what}", flush=True)
    if missing := [module for module in benchmark.needs if not _is_there(module)]:
        print(f"left out: {', '.join(missing)} not installed")
        return True
    done = subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *words(benchmark, device, quick)], check=False)
    return done.returncode == 0


def words(benchmark: Benchmark, device: str, quick: bool) -> list[str]:
    """The arguments of one benchmark."""
    chosen = benchmark.quick.split() if quick else benchmark.full.split()
    if benchmark.cuda is not None and device == "cuda":
        chosen += ["--device", "cuda", *([] if quick else benchmark.cuda.split())]
    return chosen


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


if __name__ == "__main__":
    sys.exit(main())
