"""The report of a sweep that tunes: both grids, whether the ranking survives, what was chosen, and the trails."""

from __future__ import annotations

import re
from dataclasses import replace

import pandas as pd
import pytest

from goal_sweep.analysis.report.finding import tuning_answers
from goal_sweep.analysis.report.notes import notes
from goal_sweep.analysis.report.writing import ReportResult
from goal_sweep.analysis.results import SweepResults
from goal_sweep.analysis.statistics.aggregation import aggregate, first_blocks, missing_counts
from goal_sweep.analysis.statistics.gains import block_pairs, fates, gains
from goal_sweep.sweeps.results import METRICS
from goal_sweep.sweeps.tuning.block import Domain, TuneConfig
from goal_sweep.sweeps.tuning.trail import Trail
from tests.helpers.blank_figures import write_texts
from tests.helpers.results_cases import inputs_of, recalls
from tests.helpers.tuned_cases import TUNE, trail, tuned_sweep, unfinished_sweep, write_cell

SIX = replace(TUNE, budget=6)
R1 = METRICS["i2t_r1"]


def _trails() -> list[Trail]:
    first, last = trail("con/con", 6, chosen=0), trail("sig/nca", 6, chosen=1)
    tried = list(last.candidates)
    tried[5] = replace(tried[5], score=None, scores={}, failed="loss is NaN at step 3")
    return [first, trail("con/nca", 6), replace(last, candidates=tuple(tried)), trail("sig-ms/cir", 6)]


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
    assert [block.key.grid for block in first_blocks(results, blocks)] == ["tuned"]


def test_no_candidate_is_a_reporting_training(results: SweepResults, report: ReportResult) -> None:
    assert len(results.candidates) == 24
    for name in ("cells", "runs", "marginals", "tuning"):
        text = (report.folder / f"{name}.csv").read_text()
        assert "candidate" not in text
        assert "try-" not in text
    cells = pd.read_csv(report.folder / "cells.csv")
    assert cells["n"].unique().tolist() == [3]
    assert cells["grid"].unique().tolist() == ["default", "tuned"]
    assert (report.num_expected, report.num_counted) == (21, 21)
    candidates = pd.read_csv(report.folder / "candidates.csv")
    assert len(candidates) == 24
    assert not any("test" in column for column in candidates.columns)


def test_the_pairs_told_apart_by_default_are_confirmed_reversed_or_undecided(results: SweepResults) -> None:
    default, tuned = (block.grids["i2t_r1"].comparison for block in aggregate(results))
    apart = [
        (change.estimate, tuned.differences[names])
        for names, change in default.differences.items()
        if change.told_apart and names[0] < names[1]
    ]
    signs = [estimate * later.estimate for estimate, later in apart if later.told_apart]
    found = fates(default, tuned)
    assert (found["confirmed"], found["reversed"]) == (sum(s > 0 for s in signs), sum(s < 0 for s in signs))
    assert found["undecided"] == len(apart) - len(signs)
    assert sum(found.values()) == len(apart) > 0
    pair = next(names for names, change in default.differences.items() if change.verdict == "better")
    apart_from_it = fates(default, tuned, unmoved=pair)
    assert (apart_from_it["unmoved"], sum(apart_from_it.values())) == (1, len(apart))


def test_gains_are_paired_by_seed_and_judged(results: SweepResults) -> None:
    (pair,) = block_pairs(aggregate(results))
    gained = gains(results, pair, R1)
    assert gained["con", "con"].same
    assert gained["con", "con"].difference is not None
    assert gained["con", "con"].difference.estimate == 0
    rows = results.counted
    rows = rows[rows["pair"] == "sig-ms"].pivot(index="seed", columns="grid", values="test/i2t_r1")
    change = rows["tuned"] - rows["default"]
    cir = gained["sig-ms", "cir"]
    assert cir.difference is not None
    assert cir.difference.estimate == pytest.approx(change.mean())
    assert cir.difference.told_apart


def test_a_gain_is_for_new_test_images_where_both_grids_are(results: SweepResults) -> None:
    (pair,) = block_pairs(aggregate(results))
    assert pair.beyond_seeds(R1) == ()
    for block, beyond in ((pair.default, ("test images",)), (pair.tuned, ("test images", "searches"))):
        vars(block.grids[R1.key].comparison)["beyond_seeds"] = beyond
    assert pair.beyond_seeds(R1) == ("test images",)


def test_the_first_screen_speaks_of_both_grids_and_names_both_winners(report: ReportResult) -> None:
    text = (report.folder / "report.md").read_text()
    first = text.split("## Differences from con/con")[0]
    assert "**R@1. Which objective is best when tuned?** Image → Text R@1: highest mean sig-ms/cir" in first
    assert "stage frozen, default grid | Image → Text R@1 | con/con |" in first
    assert "stage frozen, tuned grid | Image → Text R@1 | sig-ms/cir |" in first
    assert "TUNED: each objective had a budget of 6 candidates (random search, search seed 1)" in first
    assert "amount to 2.4 values of each of the 2 settings of con/con and to 1.8 values of each of the 3" in first
    assert len(report.first_words) == 6
    assert len(report.as_json()["findings"]) == 12


def test_a_choice_of_the_default_is_no_gain_that_was_judged(results: SweepResults) -> None:
    """Its change is 0 by definition, which says nothing about the others."""
    single = replace(results, runs=results.runs[results.runs["seed"] == 1])
    answers = dict(tuning_answers(inputs_of(single), "R@1"))
    gain = answers["What did tuning gain?"]
    changes = [float(number) for number in re.findall(r"[+-]\d+\.\d", gain)]
    assert gain.startswith("None can be judged")
    assert len(changes) == 2
    assert max(changes) > 0
    assert "not told apart from it: not judged" not in answers["Which objective is best when tuned?"]


def test_pairs_of_the_same_runs_are_neither_confirmed_nor_undecided() -> None:
    default = [replace(own, chosen=0) for own in _trails()]
    answers = dict(tuning_answers(inputs_of(tuned_sweep(default, SIX).results()), "R@1"))
    fate = answers["Which differences of the default grid does tuning confirm?"]
    same = re.fullmatch(r"Of (\d+) pairs .* confirms 0, reverses 0 and leaves 0 undecided; (\d+) are .*", fate)
    assert same is not None
    assert same[1] == same[2]


def test_a_mean_that_all_tuned_objectives_share_is_no_highest_one() -> None:
    writer = tuned_sweep(_trails(), SIX)
    for row in writer.rows:
        row |= {name: 50.0 for name in row if name.startswith("test/")}
    best = dict(tuning_answers(inputs_of(writer.results()), "R@1"))["Which objective is best when tuned?"]
    assert best.startswith("Image → Text R@1: all have the same mean, 50.0 ± 0.0; Text")


def test_the_sections_of_a_tuned_sweep(report: ReportResult) -> None:
    text = (report.folder / "report.md").read_text()
    assert "In 1 square of the tables the choice was the default." in text
    assert "| con/con | 37.2 ± 0.2 | 37.2 ± 0.2 | = |" in text
    assert "24 candidates were trained" in text
    assert "1 failed" in text
    names = {str(path.relative_to(report.folder)) for path in report.files}
    stem = "coco-vsepp-resnet152"
    latex = (report.folder / f"tables/tuned-{stem}-frozen-i2t-r1.tex").read_text()
    assert "std of 3 seeds; =: the same training.}" in latex
    assert {"tuning/gains-r1.png", "tuning/gains-rsum.pdf"} <= names
    assert {f"tables/chosen-{stem}.tex", f"tables/tuned-{stem}-frozen-i2t-r1.tex", "tuning.csv"} <= names
    assert {f"tables/{stem}-frozen-{grid}.tex" for grid in ("default", "tuned")} <= names


def test_a_choice_on_the_edge_is_flagged_in_words(report: ReportResult) -> None:
    text = (report.folder / "report.md").read_text()
    assert "lr lies on the upper edge of its range for con/con (0.008), con/nca (0.008)." in text
    assert "| con/nca | no. 3 | 5.798 (59 %) | 0.1238 (21 %) | 0.008 (100 %, upper edge) |" in text
    assert "| sig-ms/cir | no. 2 | 2.226 (27 %) | 0.08709 (11 %) | 0.004 (33 %) |" in text


def test_a_sweep_that_is_still_tuning_says_how_far_it_is(tmp_path_factory: pytest.TempPathFactory) -> None:
    writer = unfinished_sweep(_trails(), SIX, finished=4)
    for own in _trails():
        for seed in (1, 2, 3):
            write_cell(writer, "/".join(own.objective), seed, "default", {}, status="waiting")
    result = write_texts(writer.results(), tmp_path_factory.mktemp("still"))
    assert (result.num_counted, result.missing["waiting"]) == (0, 12)
    assert result.first_words == ("Still tuning: 4 of 6 candidates per objective; no reporting cell yet.",)
    text = (result.folder / "report.md").read_text()
    assert result.first_words[0] in text
    assert "## The answer" not in text
    assert notes(inputs_of(writer.results()))[0].startswith("STILL TUNING")


def test_a_variant_that_was_chosen_is_one_tuned_grid() -> None:
    tune = TuneConfig(space={"objectives.variant": Domain(choice=("paper", "released"))}, budget=2)
    trails = []
    for objective, chosen in (("con/nca", 0), ("con/cir", 1)):
        own = trail(objective, 2, names=("variant",), chosen=chosen)
        variants = zip(own.candidates, ("paper", "released"), strict=True)
        tried = [replace(one, values={"variant": variant}) for one, variant in variants]
        trails.append(replace(own, candidates=tuple(tried)))
    writer = unfinished_sweep(trails, tune)
    writer.trails = tuple(trails)
    for seed in (1, 2, 3):
        write_cell(writer, "con/nca", seed, "default,tuned", {})
        write_cell(writer, "con/cir", seed, "default", {}, metrics=recalls("con/cir", seed))
        write_cell(writer, "con/cir", seed, "tuned", {}, metrics=recalls("con/cir", seed, 3), variant="released")
    default, tuned = aggregate(writer.results())
    assert [sum(cell.n for cell in block.grids["rsum"].cells.values()) for block in (default, tuned)] == [6, 6]
    assert tuned.key.title == "MS-COCO, VSE++ (resnet152), stage frozen, tuned grid"
    assert len(block_pairs([default, tuned])) == 1
