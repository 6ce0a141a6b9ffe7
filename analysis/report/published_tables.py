"""The paper's tables, beside a sweep's numbers in its report and on their own, rendered by the code for sweeps.

Source: Xuan & Chen 2022, arXiv:2210.13188: its grids, and the validation of gradients against losses.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path

from analysis.blocks import Block
from analysis.figures.canvas import write_figure
from analysis.figures.colours import Scale, assign_colours
from analysis.figures.heatmap import draw_heatmap
from analysis.published.numbers import gradient_numbers, published_blocks, published_key
from analysis.report.latex.blocks import block_to_latex, stack_to_latex, stacks
from analysis.report.markdown import block_to_markdown
from analysis.report.parts import TextTable
from analysis.statistics.aggregation import cells_frame
from analysis.wording import mean_text
from sweeps.results import BASELINE, METRICS, RSUM, measure_slug

_VALIDATED = {"resnet152_ft": ("resnet152", "finetune"), "butd": ("butd", "train"), "wsl": ("wsl", "train")}
"""The paper's names of these rows: backbone and stage."""
# The order of the columns in the paper's tables: one direction after the other.
_RECALLS = sorted((metric for metric in METRICS.values() if metric is not RSUM), key=lambda m: m.direction)


def gradient_validation(blocks: Sequence[Block] = ()) -> TextTable:
    """The triplet loss as published, the same objective as a gradient in the paper, and con/con of this sweep."""
    rows = []
    for (dataset, framework, backbone), part in gradient_numbers().groupby(["dataset", "framework", "backbone"]):
        for implementation, lines in part.groupby("implementation", sort=False):
            by_direction = {str(line["direction"]): line for line in lines.to_dict("records")}
            cells = [_printed(by_direction[metric.direction], measure_slug(metric.name)) for metric in _RECALLS]
            rows.append((f"{framework} {backbone}", f"{implementation} (paper)", *cells))
        key = (str(dataset), str(framework), *_VALIDATED[str(backbone)])
        for block in (block for block in blocks if published_key(block.key) == key and BASELINE in block.cells):
            cells = [block.grids[metric.key].cells[BASELINE].text() for metric in _RECALLS]
            rows.append((f"{framework} {block.key.backbone}", "gradient (this sweep)", *cells))
    head = ("model", "implementation", *(metric.label for metric in _RECALLS))
    note = "COCO 5K test recalls in %; mean ± standard deviation where runs were repeated (3 in the paper)."
    label = "gradient-validation"
    return TextTable(title="Gradient against loss", head=head, rows=tuple(rows), note=note, words=2, label=label)


def render_published(out: Path, scale: Scale = "paper") -> tuple[Path, ...]:
    """Write the paper's grids as tables (Markdown, LaTeX, CSV) and heatmaps.

    Args:
        out: folder to write to; created if missing.
        scale: ``paper`` or ``colour-blind``.

    Returns:
        The files written.
    """
    blocks, tables = published_blocks(), out / "tables"
    colours = assign_colours((block.key for block in blocks), scale)
    (out / "heatmaps").mkdir(parents=True, exist_ok=True)
    files = []
    for block in blocks:
        csv = cells_frame([block]).to_csv(index=False, lineterminator="\n")
        texts = {"md": block_to_markdown(block), "tex": block_to_latex(block, colours[block.key]), "csv": csv}
        files += [_write(tables / f"{block.slug}.{suffix}", text) for suffix, text in texts.items()]
        pictures = [out / "heatmaps" / f"{block.slug}-r1.{suffix}" for suffix in ("png", "pdf")]
        write_figure(pictures, draw_heatmap, block, colours[block.key])
        files += pictures
    files += [_write(tables / f"{stack.slug}.tex", stack_to_latex(stack, colours)) for stack in stacks(blocks)]
    return tuple(files)


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _printed(line: Mapping[Hashable, str], measure: str) -> str:
    mean, std = line[f"{measure}_mean"], line[f"{measure}_std"]
    return mean_text(float(mean), float(std) if std else None, always_std=False) if mean else "--"
