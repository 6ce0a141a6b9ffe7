"""The paper's two tables that are no grids, with rows of ours where the same model was measured.

Source: Xuan & Chen 2022, arXiv:2210.13188: the comparison with the state of the art, and the validation of gradients
against losses.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.report.sections import TextTable
from analysis.statistics.compare import published_key
from analysis.tracking.blocks import Block, CellSummary, number_text
from analysis.tracking.run_schema import BASELINE, DIRECTIONS, METRICS, RSUM

_FOLDER = Path(__file__).parent
_SETS = {"coco5k": "coco", "f30k1k": "f30k"}
_MODELS = {
    "VSE++(R152, FT) ours": ("vsepp", "resnet152", ("finetune",)),
    "VSEinfty(BUTD) ours": ("vse_infty", "butd", ("train",)),
    "VSEinfty(WSL) ours": ("vse_infty", "wsl", ("train",)),
    "X-VLM ours": ("xvlm", "", ("train", "finetune")),
}
"""The paper's own rows: framework, backbone (any where empty) and stage."""
_VALIDATED = {"resnet152_ft": ("resnet152", ("finetune",)), "butd": ("butd", ("train",)), "wsl": ("wsl", ("train",))}


def state_of_the_art(blocks: Sequence[Block] = ()) -> TextTable:
    """Published recalls of each method, and under the paper's own rows those of this sweep.

    Args:
        blocks: this sweep's blocks; a row of ours is the objective with the highest mean rsum on test.
    """
    numbers = pd.read_csv(_FOLDER / "state_of_the_art.csv", dtype=str, keep_default_na=False)
    columns = [(name, direction, metric) for name in _SETS for direction in DIRECTIONS for metric in METRICS]
    rows, measured = [], 0
    for record in numbers.to_dict("records"):
        printed = tuple(record[f"{s}_{d}_{m.lower().replace('@', '')}"] or "--" for s, d, m in columns)
        method = str(record["method"]).replace("infty", "∞").replace(" ours", " (GOAL paper)")
        rows.append((method, record["pretrain_size"] or "--", *printed))
        ours = _ours(blocks, str(record["method"]), columns)
        measured += ours is not None
        rows += [ours] if ours is not None else []
    heads = tuple(f"{_SETS[s]} {d} {m}" for s, d, m in columns)
    note = "Test recalls in %, COCO on 5K, Flickr30K on 1K, as printed; -- where the source prints none."
    if measured:
        note += " This sweep: the objective with the highest mean rsum; chosen on test, so it flatters a little."
    return TextTable(
        title="State of the art", head=("method", "pre-training", *heads), rows=tuple(rows), note=note, words=2
    )


def gradient_validation(blocks: Sequence[Block] = ()) -> TextTable:
    """The triplet loss as published, the same objective as a gradient in the paper, and con/con of this sweep."""
    numbers = pd.read_csv(_FOLDER / "gradient_validation.csv")
    rows = []
    for (dataset, framework, backbone), part in numbers.groupby(["dataset", "framework", "backbone"], sort=False):
        for implementation, lines in part.groupby("implementation", sort=False):
            by_direction = {
                str(line["direction"]): {str(name): value for name, value in line.items()}
                for line in lines.to_dict("records")
            }
            cells = [_printed(by_direction[d], m) for d in DIRECTIONS for m in METRICS]
            rows.append((f"{framework} {backbone}", f"{implementation} (paper)", *cells))
        prefix, stages = _VALIDATED[str(backbone)]
        for block in _same(blocks, str(dataset), str(framework), prefix, stages):
            cells = [number_text(block.grids[d, m].cells[BASELINE]) for d in DIRECTIONS for m in METRICS]
            rows.append((f"{framework} {block.key.backbone}", "gradient (this sweep)", *cells))
    heads = tuple(f"{d} {m}" for d in DIRECTIONS for m in METRICS)
    note = "COCO 5K test recalls in %; mean ± standard deviation where runs were repeated (3 in the paper)."
    return TextTable(
        title="Gradient against loss", head=("model", "implementation", *heads), rows=tuple(rows), note=note, words=2
    )


def _printed(line: Mapping[str, Any], metric: str) -> str:
    name = metric.lower().replace("@", "")
    mean, std = (float(line[f"{name}_{kind}"]) for kind in ("mean", "std"))
    if math.isnan(mean):
        return "--"
    return f"{mean:.1f}" if math.isnan(std) else f"{mean:.1f} ± {std:.1f}"


def _same(blocks: Iterable[Block], dataset: str, framework: str, backbone: str, stages: Sequence[str]) -> list[Block]:
    return [
        block
        for block in blocks
        if published_key(block.key)[:2] == (dataset, framework)
        and backbone in ("", published_key(block.key)[2])
        and published_key(block.key)[3] in stages
        and block.grids["i2t", "R@1"].cells.get(BASELINE) is not None
        and not block.is_empty
    ]


def _ours(blocks: Sequence[Block], method: str, columns: Sequence[tuple[str, str, str]]) -> tuple[str, ...] | None:
    if method not in _MODELS:
        return None
    found = {name: _same(blocks, dataset, *_MODELS[method]) for name, dataset in _SETS.items()}
    if not any(found.values()):
        return None
    cells, chosen = [], {}
    for name, here in found.items():
        if here:
            means = {key: cell.mean for key, cell in here[0].grids[RSUM].cells.items() if cell.mean is not None}
            chosen[name] = max(means, key=lambda key: means[key])
    for name, direction, metric in columns:
        nothing = CellSummary(mean=None, std=None, n=0)
        cell = found[name][0].grids[direction, metric].cells[chosen[name]] if name in chosen else nothing
        cells.append(number_text(cell))
    names = ", ".join(dict.fromkeys("/".join(key) for key in chosen.values()))
    label = method.replace("infty", "∞").replace(" ours", "")
    return (f"{label} this sweep, {names}", "--", *cells)
