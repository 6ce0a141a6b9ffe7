r"""A unit's steps: its cells alone, sharing a backbone, or stacked; fine-tuned in every way; and with the usual tools.

    python -m benchmarks.steps --rows one trunk heads usual --backbone test_resnet --size 64
    python -m benchmarks.steps --rows compiled finetune 4-chunks --backbone resnet18 --size 112
    python -m benchmarks.steps --device cuda --backbone resnet152 --size 224 --batch 128 --embed-dim 1024 --workers 8 \
        --images 2000 --precisions bf16 fp32 --sources files pack

Sources: `files` and `pack` are photographs that are augmented, so that a frozen backbone runs in every step. Those that
are `kept` are not: they are decoded once, and a frozen backbone sees each once, so that the heads alone are measured.
`speed-up` compares the steps that all cells take in a second with the first row of the same stage. On a CPU with one
thread and no workers times are the processor's own, so that other work counts little.
"""

import argparse
import os
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from benchmarks.program import Report, Row, run
from benchmarks.units import UNIT, data_of, photographs, timed, unit_of, usual_steps
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.data.packs import plan_pack, write_pack
from goal_sweep.goal_core.models.backbones import ImageBackbone

TUNED = {"stage": "finetune"}
ROWS: Mapping[str, Mapping[str, Any]] = {
    "one": {}, "trunk": {"sharing": "trunk"}, "heads": {"sharing": "heads"}, "usual": {},
    "finetune": TUNED, "compiled": {**TUNED, "compile": "on"}, "usual-finetune": TUNED,
    "channels-first": {**TUNED, "channels_first": True},
    **{f"{count}-chunks": {**TUNED, "chunks": count} for count in (2, 4, 8)},
}  # fmt: skip
"""What each row trains: one cell, or with `sharing` all of them. Those called usual are `benchmarks.units`. On a GPU
channels come last except in `channels-first`."""
OPTIONS = {**UNIT, "cells": 15, "rows": ("one", "trunk", "heads"), "sources": ("files",), "precisions": ("fp32",)}


def measure(given: argparse.Namespace, report: Report) -> None:
    """Measure each row with each source and precision."""
    with photographs(given, given.batch * (given.warm + given.steps + 4)) as root:
        for precision in given.precisions:
            for source in given.sources:
                table = f"{given.backbone} at {given.size} px, batch {given.batch}, {precision}, images from {source}"
                firsts: dict[str, Row] = {}
                for name in given.rows:
                    stage = ROWS[name].get("stage", "frozen")
                    row = partial(_row, given, root, source, precision, name, firsts.get(stage))
                    firsts.setdefault(stage, report.row(table, name, row))


def _row(given: argparse.Namespace, root: Path, source: str, precision: Any, name: str, first: Row | None) -> Row:
    """A row, from a process of its own, which an error of CUDA may end; and its ratios to the first of its stage."""
    with ProcessPoolExecutor(1, get_context("spawn")) as own:
        if name.startswith("usual"):
            row = own.submit(usual_steps, given, root, precision, "stage" in ROWS[name]).result()
        else:
            row = own.submit(_measured, given, root, source, precision, name).result()
    if "cell steps/s" in row:
        row["images/s"] = given.batch * row["cell steps/s"]
    compared = {"/ first": "ms a step", "speed-up": "cell steps/s", "MiB / first": "MiB"}
    base = row if first is None else first
    both = row.keys() & base.keys()
    return row | {ratio: row[key] / float(base[key]) for ratio, key in compared.items() if key in both}


def _measured(given: argparse.Namespace, root: Path, source: str, precision: Any, name: str) -> dict[str, float]:
    changes = dict(ROWS[name])
    if changes.pop("channels_first", False):  # in this process, which is the row's own
        placed = ImageBackbone.placed
        ImageBackbone.placed = lambda self, device, **how: placed(self, torch.device("cpu"), **how).to(device)  # type: ignore[method-assign]
    if count := changes.pop("chunks", 0):
        changes["stage_settings"] = {"micro_batch": given.batch // count}
    data = data_of(root, given.size, "none" if source == "kept" else "crop_flip")
    dataset, packs = open_dataset(data), root / "packs" if source == "pack" else None
    if packs:
        write_pack(dataset, plan_pack(dataset, data.image, packs), workers=os.cpu_count() or 1)
    cells = given.cells if "sharing" in changes else 1
    unit = unit_of(given, data, cells=cells, precision=precision, packs=packs, **changes)
    return timed(given, unit, dataset)


if __name__ == "__main__":
    sys.exit(run(__doc__, OPTIONS, measure))
