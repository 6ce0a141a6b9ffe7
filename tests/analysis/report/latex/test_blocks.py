"""Tables for a paper: what they contain, and that they compile, fit and look the same in both layouts."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from goal_sweep.analysis.blocks import Block, CellSummary, Comparison, Difference
from goal_sweep.analysis.figures.colours import GREEN, assign_colours
from goal_sweep.analysis.published.numbers import published_blocks
from goal_sweep.analysis.report.latex.blocks import block_to_latex, stack_to_latex, stacks, table_to_latex
from goal_sweep.analysis.report.sections.published import gradient_validation
from goal_sweep.sweeps.results import METRICS
from tests.helpers.results_cases import example

LINES = re.compile(r"CAPTION (\d+) LINES")
PREAMBLE = r"""\usepackage{booktabs,colortbl,graphicx,xcolor}
\makeatletter
\long\def\@makecaption#1#2{\setbox0\vbox{\hsize=\linewidth\noindent #1: #2\par\xdef\LINES{\the\prevgraf}}%
\typeout{CAPTION \LINES\space LINES}\noindent\box0\par}
\makeatother
"""


def test_a_block_has_colours_rules_and_escapes() -> None:
    text = block_to_latex(example(), GREEN)
    assert r"\cellcolor[HTML]{FFFFFF}\underline{40.0 $\pm$ 0.2}" in text
    assert rf"\cellcolor[HTML]{{{GREEN}}}\textbf{{42.0 $\pm$ -- {{\scriptsize($n$=1)}}}}" in text
    assert r"\cmidrule(lr){2-3}\cmidrule(lr){4-5}" in text
    assert r"\multicolumn{5}{c}{\makebox[0pt]{VSE\ensuremath{\infty} (r\_152, train)}}" in text
    assert r"\label{tab:coco-vse_infty-r_152-train-r1}" in text
    comments = [line for line in text.splitlines() if line.startswith("%")]
    missing = (
        "Missing in MS-COCO, VSE∞ (r_152), stage train: con/nca seed 3 failed (loss is NaN | 50% of <x_1> at step 7)"
    )
    assert missing in " ".join(line.removeprefix("% ") for line in comments)
    assert any("Data ab." in line for line in comments)
    assert not re.search("[±→∞]", "\n".join(line for line in text.splitlines() if not line.startswith("%")))


def test_blocks_are_stacked_as_in_the_paper() -> None:
    blocks = published_blocks()
    found = {stack.slug: [(b.key.backbone, b.key.stage) for b in stack.blocks] for stack in stacks(blocks)}
    assert found == {
        "coco-vsepp-resnet152-stages": [("resnet152", "frozen"), ("resnet152", "finetune")],
        "coco-vsepp-vit_base_patch16-stages": [("vit_base_patch16", "frozen"), ("vit_base_patch16", "finetune")],
        "coco-vse_infty-backbones": [("butd", "train"), ("wsl", "train")],
        "f30k-vsepp-backbones": [("resnet152", "finetune"), ("vit_base_patch16", "finetune")],
        "f30k-vse_infty-backbones": [("butd", "train"), ("wsl", "train")],
    }
    text = stack_to_latex(stacks(blocks)[0], assign_colours(block.key for block in blocks))
    assert text.count(r"\begin{table*}") == text.count(r"\begin{tabular}") == 1
    assert text.index("VSE++ (resnet152, frozen)") < text.index("33.9") < text.index("VSE++ (resnet152, fine-tuned)")
    assert text.count(r"Image \ensuremath{\rightarrow} Text") == 1
    assert text.count(rf"\cellcolor[HTML]{{{GREEN}}}") == 5  # the best cell of each half; two are equal


def test_the_same_model_on_other_data_has_its_own_stack() -> None:
    frozen, finetuned = published_blocks()[:2]
    others = [replace(b, key=replace(b.key, data_fingerprint="0123456789abcdef")) for b in (frozen, finetuned)]
    slugs = [stack.slug for stack in stacks([frozen, finetuned, *others])]
    assert slugs == ["coco-vsepp-resnet152-stages", "coco-vsepp-resnet152-stages-0123456789ab"]


def test_the_whole_protocol_of_each_block_is_in_the_comments() -> None:
    blocks = published_blocks()
    stack = stacks(blocks)[0]
    text = stack_to_latex(stack, assign_colours(block.key for block in blocks))
    comments = " ".join(line.removeprefix("% ") for line in text.splitlines() if line.startswith("%"))
    assert all(block.caption("R@1") in comments for block in stack.blocks)


def test_a_bold_cell_carries_no_mark_of_a_cell_near_the_best() -> None:
    block = published_blocks()[0]
    tied = {("con", "con"), ("sig", "nca")}
    level = Difference(estimate=0.1, low=-1.0, high=1.2, p=0.9)
    near = {(("con", "con"), other): level for other in (("sig", "nca"), ("sig", "cir"))}
    grids = {
        key: replace(
            grid,
            cells={**grid.cells, **dict.fromkeys(tied, CellSummary(mean=90.0, std=0.1, n=3))},
            comparison=Comparison(best=("con", "con"), differences=near),
        )
        for key, grid in block.grids.items()
    }
    text = block_to_latex(replace(block, grids=grids), GREEN)
    assert text.count(r"\textbf{90.0") == 4
    assert text.count(r"\rlap{$^{\approx}$}") == 2


def compiled(folder: Path, layout: str, tables: list[str], packages: str = "", runs: int = 1) -> str:
    """The log of pdfLaTeX, which must end well; a table a page."""
    for index, table in enumerate(tables):
        (folder / f"{index}.tex").write_text(table, encoding="utf-8")
    body = r"\listoftables" + "".join(rf"\input{{{index}}}\clearpage" for index in range(len(tables)))
    text = rf"\documentclass[{layout}]{{article}}{PREAMBLE}{packages}\begin{{document}}{body}\end{{document}}"
    (folder / "t.tex").write_text(text, encoding="utf-8")
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "t.tex"]
    for _ in range(runs):
        done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
    return (folder / "t.log").read_text(encoding="utf-8", errors="replace")


def in_scripts(block: Block) -> Block:
    """A block with names in many scripts, of an objective too."""
    key = replace(block.key, dataset="表情数据集", framework="體育 ひらがな", backbone="한국어 naïve Łódź VSEα ภาษา")
    grids = {
        name: replace(grid, cells={(f"{pair}数", triplet): cell for (pair, triplet), cell in grid.cells.items()})
        for name, grid in block.grids.items()
    }
    return replace(block, key=key, grids=grids)


needs_latex = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")


@pytest.mark.slow
@needs_latex
@pytest.mark.parametrize("layout", ["onecolumn", "twocolumn"])
def test_tables_fit_the_page_and_captions_at_most_two_lines(tmp_path: Path, layout: str) -> None:
    names = {"vit_base_patch16": "vit_base_patch16_224.augreg_in21k", "wsl": "resnext101_32x8d.fb_wsl_ig1b_ft_in1k"}
    blocks = [
        replace(b, key=replace(b.key, backbone=names.get(b.key.backbone, b.key.backbone))) for b in published_blocks()
    ]
    colours = assign_colours(block.key for block in blocks)
    tables = [block_to_latex(block, colours[block.key]) for block in blocks]
    tables += [stack_to_latex(stack, colours) for stack in stacks(blocks)]
    tables += [block_to_latex(example(), GREEN, measure) for measure in ("R@1", "rsum")]
    log = compiled(tmp_path, layout, tables)
    lines = [int(number) for number in LINES.findall(log)]
    assert len(lines) == len(tables)
    assert max(lines) <= 2
    assert "Overfull" not in log


@pytest.mark.slow
@needs_latex
@pytest.mark.parametrize("layout", ["onecolumn", "twocolumn"])
def test_the_papers_own_rows_fit_the_page(tmp_path: Path, layout: str) -> None:
    tables = [table_to_latex(gradient_validation())]
    assert "Overfull" not in compiled(tmp_path, layout, tables)


@pytest.mark.slow
@needs_latex
@pytest.mark.parametrize("layout", ["onecolumn", "twocolumn"])
def test_names_in_any_script_compile(tmp_path: Path, layout: str) -> None:
    tables = [block_to_latex(in_scripts(published_blocks()[0]), GREEN)]
    log = compiled(tmp_path, layout, tables, runs=2)  # the second reads the list of tables
    assert "Missing character" not in log


def test_ascii_names_need_no_package_for_scripts() -> None:
    block = published_blocks()[0]
    assert "fontspec" not in block_to_latex(block, GREEN)
    assert METRICS["i2t_r1"].name in block_to_latex(block, GREEN)
