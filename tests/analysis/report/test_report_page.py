"""The report as a reader meets it: the page in a real browser, the tables through a real TeX."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis import ReportResult, render_published, write_report
from analysis.figures.colours import CIVIDIS, GREEN, ColourScale, text_colour
from tests.helpers.analysis_cases import SweepWriter

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
PDFLATEX = shutil.which("pdflatex")

PROBE = """
<script>
window.addEventListener("load", () => {
  const facts = [];
  const luminance = c => {
    const [r, g, b] = c.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const backdrop = e => {
    for (; e; e = e.parentElement) {
      const c = getComputedStyle(e).backgroundColor;
      if (!/, 0\\)$/.test(c) && c !== "transparent") return c;
    }
    return "rgb(255, 255, 255)";
  };
  document.querySelectorAll("details").forEach(d => d.open = true);
  let worst = 99;
  for (const e of document.querySelectorAll("h1, h2, h3, p, td, th, caption, figcaption, a, summary, small, button")) {
    if (!e.textContent.trim()) continue;
    const [a, b] = [luminance(getComputedStyle(e).color), luminance(backdrop(e))];
    worst = Math.min(worst, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
  }
  facts.push("worst-contrast=" + worst.toFixed(2));
  facts.push("requests=" + performance.getEntriesByType("resource").filter(r => !r.name.startsWith("data:")).length);
  const button = document.querySelector("table.list th button");
  button.focus();
  facts.push("focused=" + (document.activeElement === button && button.tabIndex === 0));
  const heads = t => [...t.tHead.rows[0].cells].map(cell => cell.textContent);
  const table = [...document.querySelectorAll("table.list")]
    .find(t => heads(t)[0] === "objective" && heads(t).length === 9);
  const column = [...table.querySelectorAll("thead button")].at(1);
  const values = () => [...table.tBodies[0].rows].map(r => parseFloat(r.cells[1].textContent));
  column.click();
  facts.push("descending=" + values().every((v, i, all) => i === 0 || all[i - 1] >= v));
  column.click();
  facts.push("ascending=" + values().every((v, i, all) => i === 0 || all[i - 1] <= v));
  const unnamed = [...document.querySelectorAll("img")].filter(i => !i.alt).length;
  facts.push("unnamed-images=" + unnamed);
  const wide = [...document.querySelectorAll(".scroll")].filter(e => e.scrollWidth > e.clientWidth);
  const stuck = wide.filter(e => e.tabIndex !== 0);
  facts.push("unreachable-tables=" + stuck.length);
  const out = document.createElement("pre");
  out.id = "facts";
  out.textContent = facts.join(" ");
  document.body.append(out);
});
</script>
"""


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium on the path")
@pytest.mark.parametrize("scale", ["paper", "colour-blind"])
def test_the_page_in_a_browser(complete_sweep: Callable[..., ReportResult], tmp_path: Path, scale: str) -> None:
    result = complete_sweep(tmp_path / "report", scale=scale)
    page = tmp_path / "page.html"
    page.write_text((result.out_dir / "report.html").read_text().replace("</body>", PROBE + "</body>"))
    shown = subprocess.run(
        [
            *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0"),
            *(f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=5000", "--dump-dom", page.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = re.search(r'<pre id="facts">([^<]*)</pre>', shown.stdout)
    assert found, shown.stderr[-2000:]
    facts = dict(fact.split("=") for fact in found.group(1).split())
    assert float(facts.pop("worst-contrast")) >= 4.5
    assert facts == {
        "requests": "0",
        "focused": "true",
        "descending": "true",
        "ascending": "true",
        "unnamed-images": "0",
        "unreachable-tables": "0",
    }
    assert "CONSOLE" not in shown.stderr, [line for line in shown.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.slow
@pytest.mark.skipif(PDFLATEX is None, reason="needs pdflatex on the path")
def test_every_latex_table_compiles_as_it_stands(tmp_path: Path, broken_sweep: SweepWriter) -> None:
    for name in ("goal_grid", "state_of_the_art", "gradient_validation"):
        render_published(name, tmp_path / name)
    write_report(broken_sweep.uri, "broken", tmp_path / "broken")
    tables = sorted(tmp_path.glob("**/*.tex"))
    body = "\n".join(f"\\input{{{table}}}\\clearpage" for table in tables)
    (tmp_path / "all.tex").write_text(
        "\\documentclass{article}\\usepackage{booktabs,colortbl}\\usepackage{xcolor}\\usepackage{graphicx}"
        f"\\begin{{document}}\n{body}\n\\end{{document}}\n"
    )
    made = subprocess.run(
        [str(PDFLATEX), "-interaction=nonstopmode", "-halt-on-error", "all.tex"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert made.returncode == 0, made.stdout[-2000:]
    assert len(tables) == 12 + 4
    wide = [float(points) for points in re.findall(r"Overfull \\hbox \(([0-9.]+)pt", made.stdout)]
    assert not [points for points in wide if points > 1]


def test_both_scales_run_from_pale_to_full_and_keep_their_numbers_readable() -> None:
    for full in (GREEN, CIVIDIS):
        scale = ColourScale(low=0.0, high=1.0, full=full)
        inks = [text_colour(scale.colour(value / 20)) for value in range(21)]
        assert inks[0] == "000000"
        brightness = [sum(bytes.fromhex(scale.colour(value / 20))) for value in range(21)]
        assert brightness == sorted(brightness, reverse=True)


@pytest.fixture
def complete_sweep(new_sweep: Callable) -> Callable[..., ReportResult]:
    def build(folder: Path, **options: str) -> ReportResult:
        name = f"page {options.get('scale')}"
        writer = new_sweep(name)
        objectives = [f"{pair}/{triplet}" for pair in ("con", "sig-ms") for triplet in ("con", "nca", "cir")]
        writer.write_parent(seeds=[1, 2, 3], objectives=objectives)
        for objective in objectives:
            for seed in (1, 2, 3):
                writer.write(objective, seed)
        return write_report(writer.uri, name, folder, "published", **options)

    return build
