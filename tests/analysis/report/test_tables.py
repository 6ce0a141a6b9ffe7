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
from tests.helpers.analysis_cases import example


def test_markdown_is_this_text() -> None:
    assert to_markdown(example()) == (
        "| R@1 | i2t T con | i2t T nca | t2i T con | t2i T nca |\n"
        "|:---|---:|---:|---:|---:|\n"
        "| **P con** | <u>40.0 ± 0.2</u> | **42.0 ± -- (n=1)** | <u>40.0 ± 0.2</u> | **42.0 ± -- (n=1)** |\n"
        "| **P sig-ms** | -- | -- | -- | -- |\n"
        "\n"
        "R@1 (%). MS-COCO, VSE∞ (r_152), stage train. Mean ± std over seeds 1, 2, 3. Data ab. "
        "Bold: best; underlined: second; ≈: within noise of the best (the 95 % interval of the difference holds 0, "
        "uncorrected for the number of comparisons).\n"
        "\n"
        "Missing:\n"
        "\n"
        "- con/nca seed 3: failed (loss is NaN \\| 50% of &lt;x_1> at step 7)\n"
        "- con/nca seed 2: absent\n"
        "- sig-ms/con seed 3: failed (loss is NaN \\| 50% of &lt;x_1> at step 7)\n"
    )


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
    assert len(frame) == 3 * 7  # what is not asked for has no row
    row = frame[(frame["triplet"] == "nca") & (frame["metric"] == "R@10") & (frame["direction"] == "t2i")].iloc[0]
    assert (row["mean"], row["n"]) == (42.04, 1)
    assert row["missing"].startswith("seed 3 failed (loss is NaN")
