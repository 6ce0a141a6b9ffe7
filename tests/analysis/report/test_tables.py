from __future__ import annotations

import io
import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from analysis.figures.colours import GREEN
from analysis.report.tables import to_csv, to_latex, to_markdown
from analysis.run_schema import measure_slug
from tests.helpers.analysis_cases import example

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("measure", ["R@1", "rsum"])
@pytest.mark.parametrize("suffix", ["md", "tex"])
def test_a_table_is_the_golden_one(suffix: str, measure: str, pytestconfig: pytest.Config) -> None:
    """After a change that is meant: run with --update-golden, and read the difference."""
    path = GOLDEN / f"example-{measure_slug(measure)}.{suffix}"
    text = to_markdown(example(), measure) if suffix == "md" else to_latex(example(), GREEN, measure)
    if pytestconfig.getoption("--update-golden"):
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"no golden table {path.name}; write it with --update-golden"
    assert text == path.read_text(encoding="utf-8"), f"{path.name} is another; if that is meant, use --update-golden"


def test_rsum_stands_alone() -> None:
    lines = to_markdown(example(), "rsum").splitlines()
    assert lines[0] == "| rsum | T con | T nca |"
    assert "sum of the six recalls in %, 0 to 600" in "".join(lines)


def test_latex_has_colours_rules_and_escapes() -> None:
    text = to_latex(example(), GREEN)
    assert r"\cellcolor[HTML]{FFFFFF}\underline{40.0 $\pm$ 0.2}" in text
    assert rf"\cellcolor[HTML]{{{GREEN}}}\textbf{{42.0 $\pm$ -- {{\scriptsize($n$=1)}}}}" in text
    assert r"\cmidrule(lr){2-3}\cmidrule(lr){4-5}" in text
    assert r"VSE$\infty$ (r\_152)" in text
    assert "Missing: con/nca failed: seed 3; absent: seed 2; sig-ms/con failed: seed 3." in text
    assert r"\label{tab:coco-vse_infty-r_152-train-r1}" in text
    comments = [line for line in text.splitlines() if line.startswith("%")]
    assert "% missing: con/nca seed 3: failed (loss is NaN | 50% of <x_1> at step 7)" in comments
    assert not re.search("[±→∞]", "\n".join(line for line in text.splitlines() if not line.startswith("%")))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
@pytest.mark.parametrize("metric", ["R@1", "rsum"])
def test_latex_compiles_with_a_minimal_preamble(tmp_path: Path, metric: str) -> None:
    packages = r"\usepackage{booktabs,colortbl,graphicx}\usepackage{xcolor}"
    body = to_latex(example(), GREEN, metric)
    (tmp_path / "t.tex").write_text(rf"\documentclass{{article}}{packages}\begin{{document}}{body}\end{{document}}")
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "t.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "t.pdf").stat().st_size > 1000


def test_csv_is_tidy_and_unrounded() -> None:
    frame = pd.read_csv(io.StringIO(to_csv(example())), keep_default_na=True)
    assert len(frame) == 3 * 7  # an objective that is not in the sweep has no row
    row = frame[(frame["triplet"] == "nca") & (frame["metric"] == "R@10") & (frame["direction"] == "t2i")].iloc[0]
    assert (row["mean"], row["n"]) == (42.04, 1)
    assert row["missing"].startswith("seed 3 failed (loss is NaN")
