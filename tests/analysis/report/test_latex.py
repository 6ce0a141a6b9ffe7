"""Tables for a paper: what they contain, and that they compile and fit the page in both layouts."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from goal_sweep.analysis.blocks import CellSummary, Comparison
from goal_sweep.analysis.figures.canvas import GREEN, assign_colours
from goal_sweep.analysis.published.comparison import published_blocks
from goal_sweep.analysis.report.latex import block_to_latex, latex_text
from tests.helpers.results_cases import example


def test_a_bold_cell_carries_no_mark_of_a_cell_near_the_best() -> None:
    block = published_blocks()[0]
    names = [("con", "con"), ("sig", "nca"), ("sig", "cir")]
    near = Comparison(names=names, best=names[0], estimates=np.zeros((3, 3)), reach=np.ones((3, 3)), p=np.ones((3, 3)))
    tied = dict.fromkeys(names[:2], CellSummary(mean=90.0, std=0.1, n=3))
    grids = {key: replace(g, cells={**g.cells, **tied}, comparison=near) for key, g in block.grids.items()}
    text = block_to_latex(replace(block, grids=grids), GREEN)
    assert text.count(r"\bfseries 90.0") == 4
    assert text.count(r"\rlap{$^{\approx}$}") == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a_b & 50 % #1 {y}", r"a\_b \& 50 \% \#1 \{y\}"),
        ("<x> ~ \\", r"\ensuremath{<}x\ensuremath{>} \textasciitilde{} \textbackslash{}"),
        ("two\nlines", "two lines"),
        ("VSE∞ ± → naïve", r"VSE\ensuremath{\infty} \ensuremath{\pm} \ensuremath{\rightarrow} naïve"),
    ],
)
def test_text_is_escaped(text: str, expected: str) -> None:
    assert latex_text(text) == expected


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
@pytest.mark.parametrize("layout", ["onecolumn", "twocolumn"])
def test_tables_compile_and_fit_the_page(tmp_path: Path, layout: str) -> None:
    names = {"vit_base_patch16": "vit_base_patch16_224.augreg_in21k", "wsl": "resnext101_32x8d.fb_wsl_ig1b_ft_in1k"}
    blocks = [
        replace(b, key=replace(b.key, backbone=names.get(b.key.backbone, b.key.backbone))) for b in published_blocks()
    ]
    colours = assign_colours(block.key for block in blocks)
    tables = [block_to_latex(block, colours[block.key]) for block in blocks]
    tables += [block_to_latex(example(), GREEN, measure) for measure in ("R@1", "rsum")]
    packages = r"\usepackage{adjustbox,booktabs}\usepackage[table]{xcolor}"
    body = "".join(f"{table}\n\\clearpage\n" for table in tables)
    body = rf"\begin{{document}}{{\sloppy\listoftables}}{body}\end{{document}}"
    document = rf"\documentclass[{layout}]{{article}}{packages}{body}"
    (tmp_path / "t.tex").write_text(document, encoding="utf-8")
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "t.tex"]
    for _ in range(2):  # the second reads the list of tables
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
    assert "Overfull" not in (tmp_path / "t.log").read_text(encoding="utf-8", errors="replace")
