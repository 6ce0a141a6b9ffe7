"""All benchmarks, or those that are named, one after the other, each in a process of its own.

    python -m benchmarks [--device cuda] [--quick] [--out DIR] [NAME ...]
    python -m benchmarks.steps --help

Those of goal_core need its dependencies alone. The others say what is missing, and are left out. `--quick` only shows
that they run: its figures mean nothing. `python -m benchmarks.gpu` proves a GPU within ten minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import Any

import torch

from benchmarks.program import ROOT, machine, markdown_head, markdown_row

LEAST_S, CPU_PATIENCE = 10.0, 4
"""A step is left out where less time is left. Limits are a GPU's; a CPU gets so many times as much."""


@dataclass(frozen=True)
class Step:
    """A program with its arguments."""

    name: str
    what: str
    module: str
    quick: str = ""
    """Arguments with which it takes seconds."""
    full: str = ""
    cuda: str = ""
    """Further arguments of a whole run on a GPU."""
    limit: float = inf
    """Seconds."""
    needs: tuple[str, ...] = ()
    """Modules beside goal_core's dependencies."""


TINY = "--images 60 --size 32 --batch 8 --embed-dim 16 --word-dim 8 --steps 2"
# The workers have 16 batches in advance, which must be used up before waiting for data is what it stays.
RESNET152 = "--backbone resnet152 --size 224 --batch 128 --embed-dim 1024 --threads 8 --workers 8 --warm 18 --steps 20"
STEPS = (
    Step("sharing", "15 cells in a unit, sharing and stacked, against one and the usual tools", "steps",
         f"{TINY} --cells 2 --rows one heads usual", "--rows one trunk heads usual", RESNET152),
    Step("finetune", "a fine-tuning step, in chunks and with each option", "steps",
         f"{TINY} --rows finetune 4-chunks --apart",
         "--rows finetune usual-finetune channels_last recompute 2-chunks 4-chunks 8-chunks --apart "
         "--sources kept --backbone resnet18 --size 112 --embed-dim 256 --batch 64 --steps 5",
         f"{RESNET152} --precisions bf16"),
    Step("ratios", "objectives and recall against one product", "ratios", "--batch 16 --dim 8 --images 50 --rounds 1"),
    Step("data_path", "images from the disk to the model, and checksums", "data_path", TINY, "--backbone resnet18",
         "--images 400 --backbone resnet152 --workers 8"),
    Step("orchestration", "what the driver of a launch costs per event", "orchestration", "--trainings 15",
         needs=("pydantic", "ruamel", "ray", "mlflow", "rich")),
    Step("report", "reading and reporting ten thousand runs", "report", "--runs 30 --blocks 1 --epochs 1",
         needs=("mlflow", "matplotlib", "jinja2", "scipy")),
)  # fmt: skip


def _drive(steps: Sequence[Step], given: argparse.Namespace) -> int:
    """Run steps, and write `gpu.json` and `gpu.md` anew after each of them."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the step that runs is ended, too
    end, outcomes = time.monotonic() + given.deadline, dict[str, dict[str, Any]]()
    results: dict[str, Any] = {"date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", "machine": machine(given.device)}
    results |= {"quick": given.quick, "steps": outcomes}
    with tempfile.TemporaryDirectory(prefix="goal-sweep-bench-") as scratch:
        for step in steps:
            outcomes[step.name] = _left_out("not reached")
        for step in steps:
            print(f"\n== {step.name}: {step.what}", flush=True)
            arguments = step.quick if given.quick else f"{step.full} {step.cuda if given.device == 'cuda' else ''}"
            outcome = _run(step, f"--device {given.device} {arguments}", Path(scratch), end - time.monotonic())
            print(f"{step.name}: {outcome['status']} {outcome['reason']}", flush=True)
            results |= {"prices": outcome.pop("prices")} if "prices" in outcome else {}
            outcomes[step.name] = outcome
            if given.device == "cpu" and "not_measured" in outcome:
                outcome["not_measured"] = outcome["not_measured"] or {"a GPU": "it ran on a CPU"}
            if given.out:
                Path(given.out).mkdir(parents=True, exist_ok=True)
                Path(given.out, "gpu.json").write_text(json.dumps(results, indent=1))
                Path(given.out, "gpu.md").write_text("\n".join(_page(results)) + "\n")
    signal.signal(signal.SIGTERM, before)
    return int(any(outcome["status"] in ("failed", "late") for outcome in outcomes.values()))


def _left_out(reason: str) -> dict[str, Any]:
    return {"status": "left out", "reason": reason, "seconds": 0.0}


def _run(step: Step, arguments: str, scratch: Path, left: float) -> dict[str, Any]:
    """Run a step in a process of its own, for at most its limit and the seconds that are left."""
    if missing := [module for module in step.needs if find_spec(module) is None]:
        return _left_out(f"{', '.join(missing)} not installed")
    if left < LEAST_S:
        return _left_out(f"{max(0.0, left):.0f} s were left of the deadline")
    saved, began = scratch / f"{step.name}.json", time.monotonic()
    limit = min(left, step.limit * (1 if "--device cuda" in arguments else CPU_PATIENCE))
    command = f"python -m benchmarks.{step.module} {arguments.format(data=scratch / 'photographs')}"
    status, reason = "done", ""
    python = [sys.executable, "-X", "faulthandler", *command.split()[1:], "--json", str(saved)]
    with (scratch / "errors").open("w+") as errors:
        process = subprocess.Popen(python, cwd=ROOT, stderr=errors, start_new_session=True)
        try:
            if process.wait(None if limit == inf else limit):
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
    content = json.loads(saved.read_text()) if saved.exists() else {}
    reasons = [reason] * (status == "late") + [f"{row}: {why}" for row, why in content.get("failed", {}).items()]
    if status != "done":
        content |= {"errors": said, "reason": "; ".join(reasons or [reason, *said[-1:]])}
    return {"status": status, "reason": "", "seconds": time.monotonic() - began, "command": command, **content}


def _page(results: Mapping[str, Any]) -> Iterator[str]:
    """The lines of the page: the machine, the steps with what they did not measure, and every table."""
    about, steps = results["machine"], results["steps"]
    yield f"## {about.get('card', about['processor'])}, {results['date']}\n"
    yield ", ".join(f"{key} {value}" for key, value in about.items()) + ".\n"
    if results["quick"]:
        yield "A quick run, which only shows that everything runs: its figures mean nothing.\n"
    yield markdown_head({"status": "", "seconds": "", "not measured, and why": ""})
    for name, step in steps.items():
        missing = [step["reason"], *(f"{what}: {why}" for what, why in step.get("not_measured", {}).items())]
        why = "; ".join(filter(None, missing)) or "-"
        yield markdown_row(name, {"status": step["status"], "seconds": step["seconds"], "why": why})
    for name, step in steps.items():
        for table, rows in step.get("tables", {}).items():
            columns = dict.fromkeys((column for row in rows.values() for column in row), "")
            yield f"\n**{name}**: {table}\n\n{markdown_head(columns)}"
            yield from (markdown_row(label, {**columns, **row}) for label, row in rows.items())


def main(
    arguments: Sequence[str] | None = None, *, steps: Sequence[Step] = STEPS, doc: str | None = __doc__,
    device: str = "cpu", deadline: float = inf,
) -> int:  # fmt: skip
    """Run benchmarks; 1 if one failed or was late.

    Args:
        arguments: the command line.
        steps: all that there are, in their order.
        doc: the help.
        device: the default.
        deadline: seconds in which all must end, by default.
    """
    listed = "\n".join(f"{step.name:14} {step.what}" for step in steps)
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter, epilog=listed)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help="the same")
    parser.add_argument("--device", choices=("cuda", "cpu"), default=device)
    parser.add_argument("--quick", action="store_true", help="only show that they run")
    parser.add_argument("--out", default="", required=deadline < inf, help="folder for gpu.json and gpu.md")
    parser.add_argument("--deadline", type=float, default=deadline, help="seconds of the whole run")
    given = parser.parse_args(arguments)
    names = [*given.names, *given.only]
    if unknown := [name for name in names if name not in {step.name for step in steps}]:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are:\n{listed}")
    if given.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch finds no CUDA device; --device cpu --quick shows that everything else works")
    return _drive([step for step in steps if not names or step.name in names], given)


if __name__ == "__main__":
    sys.exit(main())
