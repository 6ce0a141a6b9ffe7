"""The report of a sweep that tunes: both grids, what was chosen, and the candidates."""

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from goal_sweep.analysis.report.sections.changes import edge
from goal_sweep.analysis.report.sentences import notes
from goal_sweep.analysis.report.writing import ReportResult
from goal_sweep.analysis.results import SweepResults
from goal_sweep.analysis.statistics.aggregation import Inputs, aggregate, missing_counts, same_but_grid
from goal_sweep.sweeps.tuning import Domain, Study, TuneConfig
from tests.helpers.blank_figures import write_texts
from tests.helpers.results_cases import inputs_of, recalls
from tests.helpers.tuned_cases import TUNE, study, tuned_sweep, unfinished_sweep, write_cell

SIX = replace(TUNE, budget=6)


def _trails() -> list[Study]:
    first, last = study("con/con", 6, chosen=0), study("sig/nca", 6, chosen=1)
    tried = list(last.candidates)
    tried[5] = replace(tried[5], score=None, scores={}, failed="loss is NaN at step 3")
    return [first, study("con/nca", 6), replace(last, candidates=tuple(tried)), study("sig-ms/cir", 6)]


@pytest.fixture(scope="module")
def results() -> SweepResults:
    return tuned_sweep(_trails(), SIX).results()


@pytest.fixture(scope="module")
def report(results: SweepResults, tmp_path_factory: pytest.TempPathFactory) -> ReportResult:
    return write_texts(results, tmp_path_factory.mktemp("tuned"))


def test_the_grids_are_blocks_and_a_choice_of_the_default_is_in_both(results: SweepResults) -> None:
    blocks = aggregate(results)
    assert [block.key.grid for block in blocks] == ["default", "tuned"]
    default, tuned = (block.grids["i2t_r1"] for block in blocks)
    assert default.cells["con", "con"].mean == tuned.cells["con", "con"].mean
    assert default.cells["sig-ms", "cir"].mean != tuned.cells["sig-ms", "cir"].mean
    assert sorted(default.beside) == sorted(tuned.means.values())
    assert len(results.counted) == 21
    assert missing_counts(results, blocks).total() == 0
    assert [block.key.grid for block in Inputs(results=results).first] == ["tuned"]


def test_no_candidate_is_a_reporting_training(results: SweepResults, report: ReportResult) -> None:
    assert len(results.candidates) == 24
    for name in ("cells", "runs"):
        text = (report.folder / f"{name}.csv").read_text()
        assert "candidate" not in text
        assert "try-" not in text
    cells = pd.read_csv(report.folder / "cells.csv")
    assert cells["n"].unique().tolist() == [3]
    assert cells["grid"].unique().tolist() == ["default", "tuned"]
    assert (report.num_expected, report.num_counted) == (21, 21)


def test_the_first_screen_speaks_of_both_grids_and_names_both_winners(report: ReportResult) -> None:
    text = (report.folder / "report.md").read_text()
    rows = [line for line in text.split("**R@1, tuned grid**")[1].splitlines() if " Image → Text R@1 |" in line]
    assert [row.split(" | ")[2] for row in rows[:2]] == ["con/con", "sig-ms/cir"]  # default, tuned
    assert "TUNED: each objective had a budget of 6 candidates (random search, seed 1)" in text
    assert report.verdict[0].startswith("Use sig-ms/cir: ")  # of the tuned grid
    assert text.index(report.verdict[0].partition(":")[0]) < text.index("\n## MS-COCO")


def test_the_sections_of_a_tuned_sweep_flag_a_choice_on_the_edge_in_words(report: ReportResult) -> None:
    text = (report.folder / "report.md").read_text()
    assert "| con/con | 37.2 ± 0.2 | 37.2 ± 0.2 | 0.0 |" in text
    assert "24 candidates were trained; 1 failed" in text
    assert "lr lies on the upper edge for con/con (0.008), con/nca (0.008)." in text
    assert "| con/nca | no. 3 | 5.798 | 0.1238 | 0.008 |" in text
    assert "| sig-ms/cir | no. 2 | 2.226 | 0.08709 | 0.004 |" in text


TAU, MARGIN, LR = Domain(loguniform=(1.0, 100.0)), Domain(uniform=(0.0, 1.0)), Domain(choice=(0.002, 0.004, 0.008))


@pytest.mark.parametrize(
    ("domain", "value", "where"),
    [
        (TAU, 10.0, ""),
        (TAU, 1.2, "on the lower edge"),
        (TAU, 90.0, "on the upper edge"),
        (TAU, 200.0, "above the range"),
        (MARGIN, 0.96, "on the upper edge"),
        (MARGIN, -0.1, "below the range"),
        (LR, 0.002, "on the lower edge"),
        (LR, 0.004, ""),
        (Domain(choice=(1, 2)), 2, ""),
        (Domain(choice=("paper", "released")), "paper", ""),
    ],
)
def test_where_a_choice_lies_in_its_range(domain: Domain, value: Any, where: str) -> None:
    assert edge(domain, value) == where


def test_a_sweep_that_is_still_tuning_says_how_far_it_is(tmp_path_factory: pytest.TempPathFactory) -> None:
    writer = unfinished_sweep(_trails(), SIX, finished=4)
    for own in _trails():
        for seed in (1, 2, 3):
            write_cell(writer, "/".join(own.objective), seed, "default", {}, status="waiting")
    result = write_texts(writer.results(), tmp_path_factory.mktemp("still"))
    assert (result.num_counted, result.missing["waiting"]) == (0, 12)
    assert result.verdict == ("Still tuning: 4 of 6 candidates per objective; no reporting cell yet.",)
    text = (result.folder / "report.md").read_text()
    assert result.verdict[0] in text
    assert "## The answer" not in text
    assert notes(inputs_of(writer.results()))[0].startswith("STILL TUNING")


def test_a_variant_that_was_chosen_is_one_tuned_grid() -> None:
    tune = TuneConfig(space={"objectives.variant": Domain(choice=("paper", "released"))}, budget=2)
    studies = []
    for objective, chosen in (("con/nca", 0), ("con/cir", 1)):
        own = study(objective, 2, names=("variant",), chosen=chosen)
        variants = zip(own.candidates, ("paper", "released"), strict=True)
        tried = [replace(one, values={"variant": variant}) for one, variant in variants]
        studies.append(replace(own, candidates=tuple(tried)))
    writer = unfinished_sweep(studies, tune)
    writer.studies = tuple(studies)
    for seed in (1, 2, 3):
        write_cell(writer, "con/nca", seed, "default,tuned", {})
        write_cell(writer, "con/cir", seed, "default", {}, metrics=recalls("con/cir", seed))
        write_cell(writer, "con/cir", seed, "tuned", {}, metrics=recalls("con/cir", seed, 3), variant="released")
    default, tuned = aggregate(writer.results())
    assert [sum(cell.n for cell in block.grids["rsum"].cells.values()) for block in (default, tuned)] == [6, 6]
    assert tuned.key.title == "MS-COCO, VSE++ (resnet152), stage frozen, tuned grid"
    assert same_but_grid(default.key, tuned.key)
