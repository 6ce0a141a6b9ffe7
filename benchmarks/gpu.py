"""Prove a GPU in one run: its tests, the flagship's speed, from files and from packs, and ratios.

    python -m benchmarks.gpu --out DIR [--device cuda|cpu] [--quick] [--only STEP ...] [--deadline SECONDS]

Needs goal_core's dependencies and pytest. Each step is a process with a time limit of its own; one that fails or is
late hides no other. The deadline shortens the last steps, or leaves them out. After every step DIR/gpu.json is written
anew. `--quick` only shows that everything runs.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any

import torch

from benchmarks.program import ROOT, machine

LEAST_S, CPU_PATIENCE = 10.0, 4
"""A step is left out where less time is left. Limits are a GPU's; a CPU gets so many times as much."""


@dataclass(frozen=True)
class Step:
    """A program with its arguments."""

    name: str
    what: str
    module: str
    """A benchmark, which takes `--device` and `--json`; or pytest, whose last lines say what failed."""
    quick: str = ""
    """Arguments with which it takes seconds."""
    full: str = ""
    limit: float = inf
    """Seconds."""


# The workers have 16 batches in advance, which must be used up before waiting for data is what it stays.
RESNET152 = "--backbone resnet152 --size 224 --batch 128 --embed-dim 1024 --threads 8 --workers 8 --warm 18 --steps 20"
TINY = "--images 60 --size 32 --batch 8 --embed-dim 16 --word-dim 8 --steps 2"
SHARED = "--data {scratch}/photographs"
"""A folder that several steps read."""
# Other versions of libraries may warn, which says nothing of the GPU; the project's own options need plugins. A file
# that cannot be imported hides no other.
TESTS = (
    "-v -rfEs --tb=short -W default -p no:cacheprovider -o addopts=--import-mode=importlib "
    "--continue-on-collection-errors -m gpu --basetemp={scratch}/tests tests/goal_core"
)
LARGE, SMALL = f"{SHARED} --images 1100 {RESNET152}", f"{SHARED} {TINY}"
STEPS = (
    Step("finetune", "what decides the hours: ResNet-152 in bf16, compiled, with channels last, and neither",
         "benchmarks.steps",
         f"{SMALL} --rows compiled finetune channels-first --precisions bf16 --sources pack",
         f"{LARGE} --rows compiled finetune channels-first --precisions bf16 --sources pack", limit=270),
    Step("float32", "the same in tf32 and fp32, not compiled", "benchmarks.steps",
         f"{SMALL} --rows finetune --precisions tf32 fp32 --sources pack",
         f"{LARGE} --rows finetune --precisions tf32 fp32 --sources pack", limit=150),
    Step("tests", "every GPU test of goal_core", "pytest", TESTS, TESTS, limit=120),
    Step("frozen", "ResNet-152, frozen, on photographs: a cell alone, and stacked cells with it compiled",
         "benchmarks.steps",
         f"{SMALL} --rows one heads --sources files --cells 3",
         f"{LARGE} --rows one heads-compiled --precisions bf16 --sources pack", limit=180),
    Step("ratios", "objectives and recall against one product", "benchmarks.ratios",
         "--batch 16 --dim 8 --images 50 --rounds 1", "--batch 1024 4096", limit=60),
    Step("tf32", "fine-tuning in tf32, compiled: what takes longest to begin", "benchmarks.steps",
         f"{SMALL} --rows finetune --precisions tf32 --sources pack",
         f"{LARGE} --rows compiled --precisions tf32 --sources pack", limit=180),
)  # fmt: skip
"""The most important first."""


def main(arguments: Sequence[str] | None = None, *, steps: Sequence[Step] = STEPS) -> int:
    """Run the steps; 1 if one failed or was late."""
    listed = "\n".join(f"{step.name:14} {step.what}" for step in steps)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter, epilog=listed)
    parser.add_argument("--only", nargs="+", metavar="STEP", choices=[step.name for step in steps], help="default: all")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="only show that they run")
    parser.add_argument("--out", type=Path, required=True, help="folder for gpu.json")
    parser.add_argument("--deadline", type=float, default=570.0, help="seconds of the whole run")
    given = parser.parse_args(arguments)
    if given.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch finds no CUDA device; --device cpu --quick shows that everything else works")
    steps = [step for step in steps if not given.only or step.name in given.only]
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the step that runs is ended, too
    end, outcomes = time.monotonic() + given.deadline, {step.name: _left_out("not reached") for step in steps}
    results: dict[str, Any] = {"date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", "machine": machine(given.device)}
    results |= {"quick": given.quick, "steps": outcomes}
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="goal-sweep-bench-") as scratch:
        for step in steps:
            print(f"\n== {step.name}: {step.what}", flush=True)
            outcome = _run(step, given, Path(scratch), end - time.monotonic())
            print(f"{step.name}: {outcome['status']} {outcome['reason']}", flush=True)
            outcomes[step.name] = outcome
            (given.out / "gpu.json").write_text(json.dumps(results, indent=1))
    signal.signal(signal.SIGTERM, before)
    return int(any(outcome["status"] in ("failed", "late") for outcome in outcomes.values()))


def _left_out(reason: str) -> dict[str, Any]:
    return {"status": "left out", "reason": reason, "seconds": 0.0}


def _run(step: Step, given: argparse.Namespace, scratch: Path, left: float) -> dict[str, Any]:
    """Run a step in a process of its own, for at most its limit and the seconds that are left."""
    if left < LEAST_S:
        return _left_out(f"{max(0.0, left):.0f} s were left of the deadline")
    saved, began = scratch / f"{step.name}.json", time.monotonic()
    limit = min(left, step.limit * (1 if given.device == "cuda" else CPU_PATIENCE))
    arguments = (step.quick if given.quick else step.full).format(scratch=scratch)
    own = "" if step.module == "pytest" else f"--device {given.device} --json {saved} "
    command, status, reason = f"python -m {step.module} {own}{arguments}", "done", ""
    python = [sys.executable, "-X", "faulthandler", *command.split()[1:]]
    with (scratch / "errors").open("w+") as errors:
        stdout = None if own else errors
        process = subprocess.Popen(python, cwd=ROOT, stdout=stdout, stderr=errors, start_new_session=True)
        try:
            if process.wait(limit):
                status, reason = "failed", f"exit status {process.returncode}"
        except subprocess.TimeoutExpired:
            status, reason = "late", f"ended after {limit:.0f} s, {'the deadline' if limit == left else 'its limit'}"
            process.send_signal(signal.SIGABRT)  # faulthandler then says where it was
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with all that it has started
            process.wait()
        errors.seek(0)
        said = [line for line in errors.read().splitlines() if line.strip()][-50:]
    content: dict[str, Any] = json.loads(saved.read_text()) if saved.exists() else {} if own else {"said": said}
    reasons = [reason] * (status == "late") + [f"{row}: {why}" for row, why in content.get("failed", {}).items()]
    if status != "done":
        content |= {"errors": said, "reason": "; ".join(reasons or [reason, *said[-1:]])}
    return {"status": status, "reason": "", "seconds": time.monotonic() - began, "command": command, **content}


if __name__ == "__main__":
    sys.exit(main())
