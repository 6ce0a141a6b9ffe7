import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from markdown_it import MarkdownIt

from goal_sweep.analysis.report.folder import files_of_report
from goal_sweep.analysis.report.pages import model_card
from goal_sweep.analysis.report.writing import ReportResult
from goal_sweep.analysis.results import SweepResults
from goal_sweep.goal_core.evaluation.metrics import METRICS
from tests.helpers.blank_figures import write_texts
from tests.helpers.results_cases import SweepWriter, large_results, recalls

_MARKDOWN = MarkdownIt("gfm-like", {"linkify": False})


@pytest.fixture(scope="module")
def whole(complete: SweepResults, tmp_path_factory: pytest.TempPathFactory) -> ReportResult:
    run = "http://127.0.0.1:5000/#/experiments/1/runs?key={training}"
    return write_texts(complete, tmp_path_factory.mktemp("complete"), compare_with_paper=True, mlflow_run=run)


@pytest.fixture(scope="module")
def gappy(broken: SweepResults, tmp_path_factory: pytest.TempPathFactory) -> ReportResult:
    return write_texts(broken, tmp_path_factory.mktemp("broken"))


def test_a_complete_sweep_has_all_files_and_no_gap(whole: ReportResult) -> None:
    names = set(files_of_report(whole.folder))
    stems = [f"coco-vsepp-resnet152-{stage}" for stage in ("frozen", "finetune")]
    assert names == {
        *("report.md", "report.html", "report.json", "cells.csv", "runs.csv"),
        *(f"tables/{s}-{m}.tex" for s in stems for m in ("r1", "r5", "r10", "rsum")),
        *(f"heatmaps/{s}-{m}.{end}" for s in stems for m in ("r1", "r5", "r10", "rsum") for end in ("png", "pdf")),
        *(f"curves/{s}.{end}" for s in stems for end in ("png", "pdf")),
    }
    assert all((whole.folder / name).stat().st_size for name in names)
    assert (whole.num_expected, whole.num_counted, whole.missing) == (90, 90, {})
    text = (whole.folder / "report.md").read_text()
    assert "90 of 90 trainings are finished. 15 objectives, seeds 1, 2, 3." in text
    assert "## Missing" not in text
    assert "| objective | paper | this sweep | change | p | verdict |" in text
    told = whole.as_json()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert len(told["cells"]) == 2 * 15 * 7  # every cell, with its interval and verdict
    cell = next(cell for cell in told["cells"] if (cell["pair"], cell["triplet"]) == ("sig-ms", "cir"))
    assert cell["difference"] == pytest.approx(1.4)
    assert (cell["low"], cell["p"], cell["verdict"]) == (None, None, "not tested")  # these seeds agree exactly
    assert [text.partition(":")[0] for text in told["sentences"]] == ["R@1", "R@5", "R@10", "rsum"]


def test_a_broken_sweep_says_everything_that_is_missing(gappy: ReportResult) -> None:
    assert (gappy.num_expected, gappy.num_counted) == (90, 39)
    assert gappy.missing == {"waiting": 46, "failed": 3, "unusable": 1, "running": 1}
    text = (gappy.folder / "report.md").read_text()
    frozen = "| MS-COCO, VSE++ (resnet152), stage frozen |"
    for line in (
        f"{frozen} lin/con | 1, 2, 3 | failed | NaN at epoch 2 \\| step 17 |",
        f"{frozen} con/nca | 2 | waiting |",
        f"{frozen} sig/con | 3 | unusable |",
        f"{frozen} sig/nca | 1 | running |",
        "| MS-COCO, VSE++ (resnet152), stage finetune | all 15 | 1, 2, 3 | waiting |",
        "Nothing of this block is finished: 45",
        "| **P lin** | -- |",
        "(n=2)",
    ):
        assert line in text
    runs = pd.read_csv(gappy.folder / "runs.csv", keep_default_na=False)
    assert runs["status"].value_counts().to_dict() == {"done": 39, **gappy.missing}
    assert not [name for name in files_of_report(gappy.folder) if "finetune" in name]


def test_nothing_finished_is_a_report_too(tmp_path: Path) -> None:
    writer = SweepWriter(seeds=[1, 2], objectives=["con/con", "sig/cir"])
    writer.write("con/con", 1, status="failed")
    result = write_texts(writer.results(), tmp_path, compare_with_paper=True)
    assert (result.num_expected, result.num_counted) == (4, 0)
    assert "only the order of the objectives is compared" in (tmp_path / "report.md").read_text()


def test_one_seed_has_no_interval_and_marks_nothing(tmp_path: Path) -> None:
    writer = SweepWriter(seeds=[1], objectives=["con/con", "sig-ms/cir"])
    writer.write("con/con", 1, metrics=recalls("con/con", 1, shift=-30))
    writer.write("sig-ms/cir", 1, metrics=recalls("con/con", 1, shift=-22))
    result = write_texts(writer.results(), tmp_path)
    table = "tables/coco-vsepp-resnet152-frozen"
    for name in ("report.md", "report.html", f"{table}-r1.tex", f"{table}-rsum.tex"):
        # The comments of LaTeX tables are wrapped.
        text = (result.folder / name).read_text().replace("\n% ", " ")
        assert "≈" not in text
        assert r"\approx" not in text
        assert "Nothing can be tested with these runs." in text


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "img", "link", "br", "wbr", "input"):
            self.open.append(tag)
        for name, value in attrs:
            self.links += [value or ""] if name in ("src", "href") else []
            self.ids |= {value or ""} if name == "id" else set()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("which", ["whole", "gappy"])
def test_the_page_is_whole_and_needs_nothing_else(which: str, request: pytest.FixtureRequest) -> None:
    result: ReportResult = request.getfixturevalue(which)
    text = (result.folder / "report.html").read_text()
    page = Page()
    page.feed(text)
    assert page.open == []
    assert page.tags.count("script") == 1  # its own
    assert page.tags.count("img") == (2 if which == "whole" else 1)
    assert all(link.startswith(("data:image/png;base64,", "#", "http://127.0.0.1:5000/#/")) for link in page.links)
    assert {link[1:] for link in page.links if link.startswith("#")} <= page.ids
    assert not re.search(r"url\(|@import", text)
    assert "background:#57BB8A" in text


def test_no_text_of_the_table_is_markup_a_formula_or_a_command(tmp_path: Path) -> None:
    text = (
        r"=1+1<script>alert(1)</script> ![i](http://h/i) [l](http://h)*e* __s__ `c` ~~d~~ https://h.org "
        "\\input{x} &copy; \x1b]0;t\x07"
    )
    writer = SweepWriter(text, seeds=[1, 2], objectives=["con/con", "con/nca"])
    settings = {"objective.own": text, "data.name": text}
    val: dict[str, Any] = {metric.val: 10.0 for metric in METRICS.values()}
    for seed in writer.seeds:
        writer.write("con/con", seed, settings=settings, dataset=text, backbone="-b", **val)
        writer.write("con/nca", seed, status="failed", reason=text, dataset=text, backbone="-b")
    write_texts(writer.results(), tmp_path)
    page = Page()
    page.feed((tmp_path / "report.html").read_text())
    assert (page.tags.count("script"), page.tags.count("img")) == (1, 1)
    assert all(link.startswith(("data:image/png;base64,", "#")) for link in page.links)
    for made in ((tmp_path / "report.md").read_text(), model_card(writer.results())):
        marks = [mark for block in _MARKDOWN.parse(made) for mark in block.children or ()]
        kinds = {mark.type for mark in marks} - {"text", "softbreak", "text_special", "strong_open", "strong_close"}
        assert kinds <= {"html_inline", "image"}
        assert {mark.content for mark in marks if mark.type == "html_inline"} <= {"<u>", "</u>"}
        links = [str(mark.attrs["src"]) for mark in marks if mark.type == "image"]
        assert all((tmp_path / link).is_file() for link in links)
        assert text.split()[0] in "".join(mark.content for mark in marks)  # nothing is lost
    for name in ("cells", "runs"):
        read = pd.read_csv(tmp_path / f"{name}.csv")
        assert {value[0] for value in read["dataset"]} == {read["backbone"][0][0]} == {"'"}
    for table in (file.read_text() for file in tmp_path.glob("tables/*.tex")):
        assert "\\input" not in re.sub("(?m)^%.*", "", table)


@pytest.mark.parametrize("text", ["=1+1", "@SUM(A1)", "-cmd|' /C calc'!A0", "+-1", "\tx"])
def test_texts_from_the_table_cannot_become_formulas(tmp_path: Path, text: str) -> None:
    writer = SweepWriter(seeds=[1, 2], objectives=["con/con"])
    writer.write("con/con", 1, settings={"stages.frozen.lr": "-0.5"})
    writer.write("con/con", 2, status="failed", reason=text, settings={"stages.frozen.lr": "low"})
    runs = pd.read_csv(write_texts(writer.results(), tmp_path).folder / "runs.csv")
    assert runs["reason"].dropna().tolist() == [f"'{text}"]
    assert set(runs["setting/stages.frozen.lr"]) == {"-0.5", "low"}


@pytest.mark.slow
@pytest.mark.exhaustive
def test_forty_seeds_of_a_block_are_a_report(tmp_path: Path) -> None:
    result = write_texts(large_results(600, blocks=1, epochs=2), tmp_path)
    (block,) = result.inputs.blocks
    assert (result.num_counted, block.cells["con", "con"].n) == (600, 40)
    assert block.grids["rsum"].comparison.from_baseline["sig-ms", "cir"].verdict == "better"
