"""What `goal-sweep plan` needs to know of a device: `python -m benchmarks.prices --device cuda`.

Backbones: one image of a batch in evaluation mode without gradients; a training step of the first of them. Heads: a
VSE++ cell on kept features, as wide as asked for, and as narrow as can be, whose step is everything but arithmetic.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import torch

from benchmarks.program import Report, Row, machine, run, seconds
from benchmarks.units import UNIT, WORDS, data_of, photographs, timed, unit_of
from goal_sweep.goal_core.data import open_dataset
from goal_sweep.goal_core.data.config import ImageConfig, KarpathyConfig
from goal_sweep.goal_core.models import autocast, build_backbone
from goal_sweep.goal_core.training import Precision, UnitPlan
from goal_sweep.goal_core.training.train import begin_process

SIZES = {"swin_base_patch4_window12_384": 384}
LENGTH, NARROW = WORDS + 2, 16
"""Ids of a caption, its start and end included; dimensions of the narrow head."""
OPTIONS = {
    **UNIT, "embed_dim": 1024, "batch": 128, "size": 32, "forward_batch": 64, "forward_size": 224, "rounds": 5,
    "backbones": ("resnet152", "resnet50", "vit_base_patch16_224", "resnext101_32x8d", "tf_efficientnet_lite0",
                  "swin_base_patch4_window12_384"),
}  # fmt: skip


def measure(given: argparse.Namespace, report: Report) -> None:
    """Measure, and keep what is known so far as the block `prices`."""
    about, forward = machine(given.device), dict[str, dict[str, Any]]()
    names: tuple[Precision, ...] = ("bf16", "tf32", "fp32", "fp16") if given.device == "cuda" else ("fp32",)
    if given.device == "cpu":
        report.leave_out("capability, memory and other precisions", "there is no GPU")
    source = f"python -m benchmarks.gpu, torch {torch.__version__}, {datetime.now(UTC):%Y-%m-%d}"
    prices: dict[str, Any] = {
        "card": about.get("card", about["processor"]), "kind": given.device,
        **{key: about[key] for key in ("capability", "memory_mb") if key in about},
        "source": source, "measured_in": names[0], "forward_ms": forward,
    }  # fmt: skip
    report.extra["prices"] = prices
    with photographs(given, given.batch * (given.warm + given.steps + 4)) as root:
        data = data_of(root, given.size, "none")
        for name in given.backbones:
            size = SIZES.get(name, given.forward_size)
            own = argparse.Namespace(**{**vars(given), "backbone": name})
            unit = unit_of(own, replace(data, image=ImageConfig(size=size, resize=size)), precision=names[0])
            row = report.row("forward pass, ms an image", name, partial(_forward, given, unit, names))
            if row:
                forward[name] = {"image_size": size, **{key: ms for key, ms in row.items() if key != "fp16"}}
            if row and name == given.backbones[0]:
                prices["precision_factor"] = {key: float(ms) / float(row[names[0]]) for key, ms in row.items()}
                prices |= report.row("training step / forward pass", name, partial(_factor, given, unit, row))
        heads = partial(_heads, given, data, names[0])
        row = report.row(f"VSE++ heads, batch {given.batch}, {names[0]}", f"D {given.embed_dim} and {NARROW}", heads)
        prices |= {key: row[key] for key in ("gmac_s", "step_s") if key in row}
        report.save()


def _image_ms(given: argparse.Namespace, unit: UnitPlan, *, train: bool = False) -> float:
    """Milliseconds of an image of a batch, at best: a forward pass, or a training step."""
    size = given.forward_size if unit.data.image is None else unit.data.image.size
    begin_process(unit)
    backbone = build_backbone(unit.model.backbone, image_size=size, seed=1).to(unit.device)
    optimizer = torch.optim.Adam(backbone.parameters(), lr=1e-5, fused=True)
    pixels = torch.randint(256, (given.forward_batch, 3, size, size), dtype=torch.uint8).to(given.device)

    def step() -> None:
        with torch.set_grad_enabled(train), autocast(unit.precision, pixels.device):
            features = backbone(pixels)
        if train:
            torch.autograd.backward(features.float().square().sum())
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return 1000 * min([seconds(step, given.device, given.threads) for _ in range(given.rounds + 2)][2:]) / len(pixels)


def _forward(given: argparse.Namespace, unit: UnitPlan, names: tuple[Precision, ...]) -> Row:
    return {name: _image_ms(given, replace(unit, precision=name)) for name in names}


def _factor(given: argparse.Namespace, unit: UnitPlan, forward: Row) -> Row:
    return {"train_factor": _image_ms(given, unit, train=True) / float(forward[unit.precision])}


def _heads(given: argparse.Namespace, data: KarpathyConfig, precision: str) -> Row:
    """A wide head and a narrow one; their difference is arithmetic, counted as planning counts it."""
    ms, width = [], 0
    for dim in (given.embed_dim, NARROW):
        own = argparse.Namespace(**{**vars(given), "embed_dim": dim, "word_dim": min(dim, given.word_dim)})
        unit = unit_of(own, data, precision=precision)
        ms.append(timed(own, unit, open_dataset(data))["ms a step"])
        width = build_backbone(unit.model.backbone, image_size=given.size, seed=1).num_features
    dim, (wide, narrow) = given.embed_dim, ms
    gmac = given.batch * (width * dim + LENGTH * 3 * dim * (given.word_dim + dim)) / 1e9
    arithmetic = {"gmac_s": (wide - narrow) / 1000 / gmac} if wide > narrow else {}
    return {"ms": wide, "narrow ms": narrow, "step_s": narrow / 1000, **arithmetic}


if __name__ == "__main__":
    sys.exit(run(__doc__, OPTIONS, measure))
