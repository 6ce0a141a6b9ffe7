"""Whether training gives the same numbers in every way on this device: `python -m benchmarks.equality [--ranks]`.

In fp32, each way trains an epoch and is compared with another way: the gradients of the first step, as Adam keeps them
(of a resumed training of its first step since, with what Adam kept of those before), the weights at the end (both as
distance / norm, the largest of all tensors), the mean hinge, and rsum on val. Two ways are equal if gradients and hinge
agree within a thousandth, as the GPU tests of goal_core ask. `--ranks` compares two processes with one, with augmented
images from workers: on one GPU by gloo, on two by NCCL.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from benchmarks.program import Report, Row, run
from benchmarks.units import UNIT, Enough, StrictFiles, data_of, photographs, unit_of
from goal_core.checkpoints import LAST, read_checkpoint
from goal_core.data import open_dataset
from goal_core.training import EpochDone, SilentListener, TrainingEvent, UnitPlan, train_unit

OPTIONS = {**UNIT, "batch": 16, "cells": 4, "workers": 2, "ranks": False}
TOLERANCE = 1e-3
STOP = 1
"""The step after which a training that is resumed stops, so early that rounding has not grown."""


class _Kept(StrictFiles):
    """Files that stay."""

    def discard(self, name: str) -> None:
        """Keep the file."""


class _Outcome(SilentListener):
    """The result of a training: tensors by cell and name after the first step since ``stop`` and the last; metrics."""

    def __init__(self, unit: UnitPlan, folder: Path, stop: int, ends: bool) -> None:
        self.files = {plan.key: _Kept(folder / plan.key) for plan in unit.trainings}
        self.first: dict[tuple[str, str], Tensor] = {}
        self.last, self.metrics = self.first, dict[str, dict[str, float]]()
        self.times: list[float] = []
        """Seconds of each step, without what is done here."""
        self._stop, self._ends, self._noted = stop, ends, perf_counter()

    def step(self) -> None:
        self.times.append(perf_counter() - self._noted)
        states = {key: read_checkpoint(files.path(LAST))[0] for key, files in self.files.items()}
        self.last = {(key, name): tensor for key, state in states.items() for name, tensor in state.items()}
        self.first = self.last if len(self.times) == self._stop + 1 else self.first
        self._noted = perf_counter()
        if self._ends and len(self.times) == self._stop:
            raise Enough

    def events(self, events: Sequence[TrainingEvent]) -> None:
        self.metrics |= {event.key: event.record["metrics"] for event in events if isinstance(event, EpochDone)}


def _trained(unit: UnitPlan, stop: int = 0, *, ends: bool = False) -> _Outcome:
    """Train a unit. With ``ends`` it stops after ``stop`` steps, and a second training goes on from there."""
    dataset = open_dataset(unit.data)
    with tempfile.TemporaryDirectory() as scratch:
        outcome = _Outcome(unit, Path(scratch), stop, ends)
        with suppress(Enough):
            train_unit(unit, outcome.files, outcome, dataset)
        if ends:
            train_unit(unit, outcome.files, outcome, dataset)
    return outcome


def _compared(unit: UnitPlan, other: UnitPlan, stop: int) -> Row:
    ours, theirs = _trained(unit, stop, ends=stop > 0), _trained(other, stop)

    def distance(our: Mapping[Any, Tensor], their: Mapping[Any, Tensor], *kinds: str) -> float:
        names = [name for name in our.keys() & their.keys() if name[1].startswith(kinds) or name[1].endswith(kinds)]
        pairs = [(our[name].double(), their[name].double()) for name in names]
        return max(float((mine - its).norm() / its.norm().clamp(min=1e-12)) for mine, its in pairs)

    cells = ours.metrics.keys() & theirs.metrics.keys()
    hinges, rsums = (
        [(ours.metrics[key][name], theirs.metrics[key][name]) for key in cells] for name in ("train/hinge", "val/rsum")
    )
    row = {"gradients": distance(ours.first, theirs.first, ".exp_avg"), "hinge": max(abs(a - b) / b for a, b in hinges)}
    equal = "yes" if max(row.values()) <= TOLERANCE else "NO"
    same = all(torch.equal(ours.last[name], theirs.last[name]) for name in ours.last.keys() & theirs.last.keys())
    return {
        "equal": equal, "bit for bit": "yes" if same else "no", **row, "rsum": max(abs(a - b) for a, b in rsums),
        "weights": distance(ours.last, theirs.last, "heads.", "backbone."),
        "ms a step": 1000 * median(ours.times), "other's": 1000 * median(theirs.times),
    }  # fmt: skip


def measure(given: argparse.Namespace, report: Report) -> None:
    """Compare each way with the other."""
    with photographs(given) as root:
        data = data_of(root, given.size, "crop_flip" if given.ranks else "none")

        def unit(chunk: int = 0, **settings: Any) -> UnitPlan:
            own = {"lr": 1e-3, "micro_batch": chunk, "checkpoint_every": 1}
            return unit_of(given, data, stage_settings=own, **settings)

        alone, tuned = unit(), unit(stage="finetune")
        trunk, heads = unit(cells=given.cells, sharing="trunk"), unit(cells=given.cells, sharing="heads")
        ways: dict[str, tuple[UnitPlan, UnitPlan, int]] = {
            "trunk again / trunk": (trunk, trunk, 0),
            "trunk / alone": (trunk, alone, 0),
            "heads / trunk": (heads, trunk, 0),
            "heads resumed / unbroken": (heads, heads, STOP),
            "finetune resumed / unbroken": (tuned, tuned, STOP),
            "finetune, 4 chunks / whole": (unit(given.batch // 4, stage="finetune"), tuned, 0),
        }
        if given.ranks:
            stages = {"frozen": alone, "finetune": tuned}
            if torch.cuda.device_count() < 2:
                report.leave_out("NCCL", "there are no two GPUs; the processes meet by gloo")
            two: dict[str, Any] = {"processes": 2, "on_one_gpu": torch.cuda.device_count() < 2}
            ways = {f"{name}, two processes / one": (replace(alike, **two), alike, 0) for name, alike in stages.items()}
        for name, way in ways.items():
            if report.row("way / other", name, partial(_compared, *way)).get("equal") == "NO":
                report.failed[name] = f"differs by more than {TOLERANCE}"
                report.save()


if __name__ == "__main__":
    sys.exit(run(__doc__, OPTIONS, measure))
