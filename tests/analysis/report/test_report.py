from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
from mlflow import MlflowClient

from analysis import AnalysisError, ReportResult, attach_report, publish_summary, write_report
from tests.helpers.analysis_cases import SweepWriter, recalls
from tests.helpers.blank_figures import write_texts

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def complete(complete_sweep: SweepWriter, tmp_path_factory: pytest.TempPathFactory) -> ReportResult:
    return write_report(complete_sweep.uri, "complete", tmp_path_factory.mktemp("complete"), compare="published")


@pytest.fixture(scope="module")
def broken(broken_sweep: SweepWriter, tmp_path_factory: pytest.TempPathFactory) -> ReportResult:
    return write_texts(broken_sweep.uri, "broken", tmp_path_factory.mktemp("broken"))


def test_a_complete_sweep_has_all_files_and_no_gap(complete: ReportResult) -> None:
    names = {str(f.relative_to(complete.out_dir)) for f in complete.files}
    stems = [f"coco-vsepp-resnet152-{stage}" for stage in ("frozen", "finetune")]
    assert names == {
        *("report.md", "report.html", "report.json"),
        *(f"{n}.{end}" for n in ("cells", "runs", "marginals", "differences") for end in ("csv", "parquet")),
        *(f"tables/{s}{m}.{end}" for s in stems for m in ("", "-r5", "-r10", "-rsum") for end in ("md", "tex")),
        *(f"tables/{s}.csv" for s in stems),
        *(
            f"tables/{s}{m}.tex"
            for s in ("coco-vsepp-resnet152-stages", "overview")
            for m in ("", "-r5", "-r10", "-rsum")
        ),
        *(
            f"heatmaps/{s}-{m}.{end}"
            for s in stems
            for m in ("r1", "r5", "r10", "rsum")
            for end in ("png", "pdf", "svg")
        ),
        *(f"forest/{m}.{end}" for m in ("r1", "r5", "r10", "rsum") for end in ("png", "pdf")),
        *("side-by-side.csv", "side-by-side/1-coco-vsepp-resnet152.png"),
        *(f"curves/{s}.{end}" for s in stems for end in ("png", "pdf")),
    }
    assert all(f.is_file() for f in complete.files)
    assert (complete.num_expected, complete.num_counted, complete.num_failed) == (90, 90, 0)
    assert complete.is_complete
    text = (complete.out_dir / "report.md").read_text()
    assert "90 of 90 trainings (cell and stage) are finished. 15 objectives, seeds 1, 2, 3." in text
    assert "## Missing" not in text
    assert "uncommitted changes" not in text
    assert "p (Holm)" not in text  # three pairs could not be significant
    assert "| objective | difference | 95 % interval | n pairs | p |" in text
    assert "Told apart from con/con: con/nca (+0.1)" in text
    assert "| objective | ours | paper | difference | n (ours) | verdict |" in text
    assert "of 60 cells are within both spreads" in text


def test_a_broken_sweep_says_everything_that_is_missing(broken: ReportResult) -> None:
    assert (broken.num_expected, broken.num_counted, broken.num_failed) == (90, 38, 3)
    assert not broken.is_complete
    text = (broken.out_dir / "report.md").read_text()
    frozen = "| MS-COCO, VSE++ (resnet152), stage frozen |"
    for line in (
        "missing: 46 absent, 3 failed, 1 unusable, 1 running, 1 waiting.",
        f"{frozen} lin/con | 1, 2, 3 | failed | NaN at epoch 2 \\| step 17 |",
        f"{frozen} con/nca | 2 | absent | no run in tracking |",
        f"{frozen} sig/con | 3 | unusable | done, but without a finite test/i2t_r1 |",
        f"{frozen} sig/nca | 1 | running |",
        "| MS-COCO, VSE++ (resnet152), stage finetune | all 15 | 1, 2, 3 | absent | no run in tracking |",
        "Nothing of this block is finished: 45 runs are missing.",
        "## Missing and uncounted results",
        "### Missing",
        "### Runs that do not count",
        "seed 7 is not in the sweep",
        "| **P lin** | -- |",
        "40.8 ± 0.2 (n=2)",
        "3 seeds without all objectives, so the effects of the pair and triplet weights are omitted.",
    ):
        assert line in text
    runs = pd.read_csv(broken.out_dir / "runs.csv", keep_default_na=False)
    assert len(runs) == 38 + 3 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1
    assert not [f for f in broken.files if "finetune" in f.name]


def test_one_seed_has_no_interval_and_marks_nothing(new_sweep: Callable[[str], SweepWriter], tmp_path: Path) -> None:
    writer = new_sweep("one seed only")
    writer.write_parent(seeds=[1], objectives=["con/con", "sig-ms/cir"])
    writer.write("con/con", 1, metrics=recalls("con/con", 1, shift=-30))
    writer.write("sig-ms/cir", 1, metrics=recalls("con/con", 1, shift=-22))
    result = write_texts(writer.uri, writer.name, tmp_path)
    table = "tables/coco-vsepp-resnet152-frozen"
    for name in ("report.md", "report.html", f"{table}.md", f"{table}.tex", f"{table}-rsum.tex"):
        # The comments of LaTeX tables are wrapped.
        text = (result.out_dir / name).read_text().replace("\n% ", " ")
        assert "≈" not in text
        assert r"\approx" not in text
        assert "within noise of it" not in text
        assert "interval of the difference contains 0" not in text
        assert "With one seed there is no interval, so no cell is marked as within noise of the best." in text
    assert (
        "with fewer than two seeds in common, there is no interval for its difference from the other."
        in (result.out_dir / "report.md").read_text()
    )


def test_a_cell_without_a_second_seed_is_not_marked(new_sweep: Callable[[str], SweepWriter], tmp_path: Path) -> None:
    writer = new_sweep("a lone seed")
    writer.write_parent(seeds=[1, 2], objectives=["con/con", "con/nca", "sig-ms/cir"])
    for seed in (1, 2):
        writer.write("sig-ms/cir", seed)
        writer.write("con/con", seed, metrics=recalls("sig-ms/cir", seed, shift=(0.0, -0.3)[seed - 1]))
    writer.write("con/nca", 1)
    text = (write_texts(writer.uri, writer.name, tmp_path).out_dir / "report.md").read_text()
    assert "| **P con** | <u>41.4 ± 0.0</u> ≈ | 40.1 ± -- (n=1) | -- |" in text
    assert "Cells with one seed have no interval and no mark." in text
    assert "within noise of it with these seeds; no interval against the 1 with fewer than two seeds in common" in text


def test_trainings_from_a_modified_source_tree_are_said_at_the_top(
    new_sweep: Callable[[str], SweepWriter], tmp_path: Path
) -> None:
    writer = new_sweep("modified source")
    writer.write_parent(seeds=[1, 2, 3], objectives=["con/con"])
    writer.write("con/con", 1, git_diff="1a2b3c4d5e6f")
    writer.write("con/con", 2, git_diff="")
    note = "{} of {} trainings ran from a source tree with uncommitted changes ({})."
    write_texts(writer.uri, writer.name, tmp_path)
    top = (tmp_path / "report.md").read_text().partition("## ")[0]
    assert note.format(1, 2, "all the same: 1a2b3c4d5e6f") in top
    writer.write("con/con", 3, git_diff="0a2b3c4d5e6f")
    writer.write("con/con", 4, git_diff="of a run that does not count")
    write_texts(writer.uri, writer.name, tmp_path)
    for name in ("report.md", "report.html"):
        assert note.format(2, 3, "2 different: 0a2b3c4d5e6f, 1a2b3c4d5e6f") in (tmp_path / name).read_text()


def test_imported_numbers_are_said_at_the_top_in_the_runs_and_in_mlflow(
    new_sweep: Callable[[str], SweepWriter], tmp_path: Path
) -> None:
    writer, other = new_sweep("imported"), new_sweep("trained here")
    writer.write_parent(seeds=[1, 2], objectives=["con/con"])
    writer.write("con/con", 1, imported="a.zip (sha256 1a2b)")
    writer.write("con/con", 2)
    writer.write("con/con", 3, imported="b.zip (of a run that does not count)")
    other.write_parent(seeds=[1], objectives=["con/con"])
    other.write("con/con", 1)
    said = "IMPORTED: the numbers of 1 of 2 trainings were computed elsewhere and are not verified."
    result = write_texts(writer.uri, writer.name, tmp_path)
    for name in ("report.md", "report.html"):
        assert f"{said} Archives: a.zip (sha256 1a2b)." in (tmp_path / name).read_text()
    runs = pd.read_parquet(tmp_path / "runs.parquet").set_index("seed")
    assert runs["imported"][1] == "a.zip (sha256 1a2b)"
    assert runs["imported"][2] == ""
    assert pd.read_csv(tmp_path / "runs.csv").set_index("seed")["imported"][1] == "a.zip (sha256 1a2b)"
    assert result.parent_run_id is not None
    publish_summary(writer.uri, result.parent_run_id, writer.name, result.blocks, result.origin_notes)
    note = MlflowClient(writer.uri).get_run(result.parent_run_id).data.tags["mlflow.note.content"]
    assert said in note
    write_texts(other.uri, other.name, tmp_path / "mine", others=[(writer.uri, writer.name)])
    assert f"Sweep 'imported': {said}" in (tmp_path / "mine" / "report.md").read_text()


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "img", "link", "br", "input"):
            self.open.append(tag)
        for name, value in attrs:
            self.links += [value or ""] if name in ("src", "href") else []
            self.ids |= {value or ""} if name == "id" else set()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("which", ["complete", "broken"])
def test_the_page_is_whole_and_needs_nothing_else(which: str, request: pytest.FixtureRequest) -> None:
    result: ReportResult = request.getfixturevalue(which)
    text = (result.out_dir / "report.html").read_text()
    page = Page()
    page.feed(text)
    assert page.open == []
    assert page.tags.count("script") == 1  # its own
    assert page.tags.count("img") == (3 if which == "complete" else 1)
    assert all(link.startswith(("data:image/png;base64,", "#", "http://127.0.0.1:5000/#/")) for link in page.links)
    assert {link[1:] for link in page.links if link.startswith("#")} <= page.ids
    assert not re.search(r"url\(|@import", text)
    assert "background:#57BB8A" in text


def test_texts_from_tracking_cannot_become_markup(new_sweep: Callable[[str], SweepWriter], tmp_path: Path) -> None:
    writer = new_sweep("markup")
    writer.write_parent(seeds=[1, 2], objectives=["con/con"])
    writer.write("con/con", 1)
    writer.write("con/con", 2, status="failed", reason="<script>alert(1)</script> & more")
    result = write_texts(writer.uri, "markup", tmp_path)
    assert "<script>alert" not in (result.out_dir / "report.html").read_text()
    assert "&lt;script&gt;" in (result.out_dir / "report.html").read_text()
    assert "<script" not in (result.out_dir / "report.md").read_text()


def test_nothing_finished_is_a_report_too(new_sweep: Callable[[str], SweepWriter], tmp_path: Path) -> None:
    writer = new_sweep("just begun")
    writer.write_parent(seeds=[1, 2], objectives=["con/con", "sig/cir"])
    writer.write("con/con", 1, status="waiting", metrics={})
    result = write_texts(writer.uri, "just begun", tmp_path, compare="published")
    assert (result.num_expected, result.num_counted) == (4, 0)
    text = (tmp_path / "report.md").read_text()
    assert "0 of 4 trainings (cell and stage) are finished; missing: 1 waiting, 3 absent." in text
    assert "only the order of the objectives is compared" in text


def test_writing_again_replaces_the_old_report_and_nothing_else(
    new_sweep: Callable[[str], SweepWriter], tmp_path: Path
) -> None:
    writer = new_sweep("written twice")
    writer.write_parent(seeds=[1, 2], objectives=["con/con", "sig-ms/cir"])
    for objective, seed in product(("con/con", "sig-ms/cir"), (1, 2)):
        writer.write(objective, seed)
    tmp_path.joinpath("mine.txt").write_text("keep")
    old = tmp_path / "tables" / "old-block.md"
    old.parent.mkdir()
    old.write_text("stale")
    tmp_path.joinpath("report.json").write_text(json.dumps({"files": ["tables/old-block.md", "report.json"]}))
    first = write_report(writer.uri, writer.name, tmp_path)
    before = {f: f.read_bytes() for f in first.files}
    again = write_report(writer.uri, writer.name, tmp_path)
    assert {f: f.read_bytes() for f in again.files} == before
    assert not old.exists()
    assert tmp_path.joinpath("mine.txt").read_text() == "keep"


def artifacts(client: MlflowClient, run: str, path: str = "report") -> set[str]:
    items = client.list_artifacts(run, path)
    return {p for i in items for p in (artifacts(client, run, i.path) if i.is_dir else {i.path})}


def test_attaching_replaces_the_report_of_the_parent_run(
    complete_sweep: SweepWriter, complete: ReportResult, broken: ReportResult
) -> None:
    client, parent = complete_sweep.client, complete.parent_run_id
    assert parent == complete_sweep.parent
    client.log_text(parent, "other", "notes.txt")
    attach_report(complete_sweep.uri, parent, complete.out_dir)
    assert artifacts(client, parent) == {f"report/{f.relative_to(complete.out_dir)}" for f in complete.files}
    (complete.out_dir / "private.txt").write_text("not part of the report")
    attached = attach_report(complete_sweep.uri, parent, broken.out_dir)
    assert (
        artifacts(client, parent) == set(attached) == {f"report/{f.relative_to(broken.out_dir)}" for f in broken.files}
    )
    assert [i.path for i in client.list_artifacts(parent) if not i.is_dir] == ["notes.txt"]


@pytest.mark.parametrize("listed", ["[]", '{"files": ["../x"]}', '{"files": ["/etc/passwd"]}', "{", None])
def test_attaching_refuses_what_is_no_report(complete_sweep: SweepWriter, tmp_path: Path, listed: str | None) -> None:
    if listed is not None:
        (tmp_path / "report.json").write_text(listed)
    with pytest.raises(AnalysisError, match=r"report\.json"):
        attach_report(complete_sweep.uri, str(complete_sweep.parent), tmp_path)


def test_attaching_to_an_unknown_run_is_one_line(complete_sweep: SweepWriter, complete: ReportResult) -> None:
    with pytest.raises(AnalysisError, match="cannot attach the report to run 0000") as error:
        attach_report(complete_sweep.uri, "0" * 32, complete.out_dir)
    assert "\n" not in str(error.value)
