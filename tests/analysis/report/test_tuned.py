"""A tuned sweep of four objectives: two gain much, one little, and for `con/con` the default was chosen."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis import AnalysisError, NoRunsError, ReportResult, block_links, refresh_summary
from analysis.report.survival import verdict
from analysis.run_schema import METRICS
from analysis.statistics import aggregate, block_pairs, counted, first_blocks, gains, missing_counts, survivals
from analysis.tracking import SweepRuns, fetch_runs
from tests.helpers.analysis_cases import SweepWriter, recalls
from tests.helpers.blank_figures import write_texts
from tests.helpers.tuned_cases import (
    DEFAULT,
    attach,
    candidate,
    trail,
    tuning,
    write_candidates,
    write_cell,
    write_grids,
    write_parent,
    write_tuned,
)

pytestmark = pytest.mark.integration

OBJECTIVES = ("con/con", "con/nca", "sig/nca", "sig-ms/cir")
R1 = METRICS["i2t_r1"]


def _content(**changes: Any) -> dict[str, Any]:
    own = trail("con/con", 6)
    last = trail("sig/nca", 6)
    last["candidates"][5] |= {"score": None, "scores": {}, "failed": "loss is NaN at step 3"}
    last["candidates"][4] |= {"stopped": True, "epochs": 2}
    own["chosen"], last["chosen"] = 0, 1
    trails = [own, trail("con/nca", 6), last, trail("sig-ms/cir", 6)]
    return tuning(trails=trails, budget=6, **changes)


@pytest.fixture(scope="module")
def sweep(new_sweep: Callable[[str], SweepWriter]) -> SweepWriter:
    writer = new_sweep("tuned")
    write_tuned(writer, _content())
    return writer


@pytest.fixture(scope="module")
def runs(sweep: SweepWriter) -> SweepRuns:
    return fetch_runs(sweep.uri, "tuned")


@pytest.fixture(scope="module")
def report(sweep: SweepWriter, tmp_path_factory: pytest.TempPathFactory) -> ReportResult:
    return write_texts(sweep.uri, "tuned", tmp_path_factory.mktemp("tuned"))


def test_the_grids_are_blocks_and_a_choice_of_the_default_is_in_both(runs: SweepRuns) -> None:
    blocks = aggregate(runs)
    assert [block.key.grid for block in blocks] == ["default", "tuned"]
    default, tuned = (block.grids["i2t_r1"] for block in blocks)
    assert default.cells["con", "con"].mean == tuned.cells["con", "con"].mean
    assert default.cells["sig-ms", "cir"].mean != tuned.cells["sig-ms", "cir"].mean
    assert sorted(default.beside) == sorted(tuned.means.values())
    assert len(counted(runs)) == 21
    assert missing_counts(runs, blocks).total() == 0
    assert [block.key.grid for block in first_blocks(runs, blocks)] == ["tuned"]


def test_no_candidate_is_a_reporting_run(runs: SweepRuns, report: ReportResult) -> None:
    assert len(runs.candidates) == 24
    assert not set(runs.candidates["run_id"]) & set(runs.runs["run_id"])
    for name in ("cells", "runs", "differences", "marginals", "tuning"):
        text = (report.out_dir / f"{name}.csv").read_text()
        assert "candidate" not in text
        assert "try-" not in text
    cells = pd.read_csv(report.out_dir / "cells.csv")
    assert cells["n"].unique().tolist() == [3]
    assert cells["grid"].unique().tolist() == ["default", "tuned"]
    assert (report.num_expected, report.num_counted) == (21, 21)
    candidates = pd.read_csv(report.out_dir / "candidates.csv")
    assert len(candidates) == 24
    assert not any("test" in column for column in candidates.columns)


def test_the_ranking_is_that_of_the_means_of_both_grids(runs: SweepRuns) -> None:
    blocks = aggregate(runs)
    found = {one.metric.key: one for one in survivals(runs, block_pairs(blocks))}
    means = [list(block.grids["i2t_r1"].means.values()) for block in blocks]
    one = found["i2t_r1"]
    assert one.tau == pytest.approx(stats.kendalltau(*means).statistic)
    assert (one.objectives, one.pairs) == (4, 6)
    signs = [np.sign(np.subtract.outer(mean, mean)) for mean in means]
    assert one.kept == (signs[0] * signs[1] > 0).sum() / 2
    assert one.low is not None
    assert one.high is not None
    assert one.low <= one.tau <= one.high
    assert one.winners == ((("con", "con"),), (("sig-ms", "cir"),))
    assert not one.same_winner


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tau": None, "low": None, "high": None}, "cannot be judged"),
        ({"tau": 0.9, "low": None, "high": None}, "cannot be judged"),
        ({"tau": 0.2, "low": -0.1, "high": 0.5}, "not shown"),
        ({"tau": 0.45, "low": 0.3, "high": 0.6, "chance_high": 0.5}, "not shown"),
        ({"tau": -0.4, "low": -0.6, "high": -0.1}, "no"),
        ({"tau": -0.2, "low": -0.3, "high": -0.1}, "not shown"),  # noise alone may give it
        ({"tau": 0.9, "low": 0.8, "high": 1.0}, "in part"),  # the winners differ
        ({"tau": 0.9, "low": 0.8, "high": 1.0, "apart": 0}, "cannot be judged"),  # there is no ranking
        ({"tau": 0.9, "low": 0.8, "high": 1.0, "seeds": 2}, "cannot be judged"),
    ],
)
def test_what_the_noise_of_tau_allows_to_say(runs: SweepRuns, changes: dict[str, Any], said: str) -> None:
    usual = {"chance_low": -0.3, "chance_high": 0.3, "apart": 2, "seeds": 3}
    one = replace(survivals(runs, block_pairs(aggregate(runs)))[0], **(usual | changes))
    assert verdict(one) == said
    same = replace(one, pair=replace(one.pair, tuned=one.pair.default), reversed=0)
    assert same.same_winner
    assert verdict(same) == ("yes" if said == "in part" else said)
    assert verdict(replace(same, reversed=1)) == said


def test_gains_are_paired_by_seed_and_judged(runs: SweepRuns) -> None:
    (pair,) = block_pairs(aggregate(runs))
    found = gains(runs, pair, R1)
    assert found["con", "con"].same
    assert found["con", "con"].difference is not None
    assert found["con", "con"].difference.estimate == 0
    rows = counted(runs)
    rows = rows[rows["pair"] == "sig-ms"].pivot(index="seed", columns="grid", values="test/i2t_r1")
    change = rows["tuned"] - rows["default"]
    cir = found["sig-ms", "cir"]
    assert cir.difference is not None
    assert cir.difference.estimate == pytest.approx(change.mean())
    assert cir.spread == pytest.approx(change.std(ddof=1))
    assert cir.difference.told_apart


def test_the_first_screen_speaks_of_both_grids_and_names_both_winners(report: ReportResult) -> None:
    text = (report.out_dir / "report.md").read_text()
    first = text.split("## Best objective by metric")[0]
    assert "Does the ranking survive tuning?" in first
    assert "the grids name different winners: con/con by default, sig-ms/cir tuned" in first
    assert "R@1. Default grid: In no table" in first
    assert "Tuned grid: In 2 of 2 tables" in first
    assert "stage frozen, default grid | Image → Text R@1 | con/con |" in first
    assert "stage frozen, tuned grid | Image → Text R@1 | sig-ms/cir |" in first
    assert "TUNED: each objective had a budget of 6 candidates (random search, search seed 1)" in first
    assert "averaged runs differ in their settings" not in text
    page = (report.out_dir / "report.html").read_text()
    assert page.index("Does the ranking survive tuning?") < page.index("Default grid: In no table")
    assert "the strongest colour the highest, of both grids of a block" in page
    assert report.tuning_notes[0].startswith("R@1. Does the ranking survive tuning?")


def test_the_sections_of_a_tuned_sweep(report: ReportResult) -> None:
    text = (report.out_dir / "report.md").read_text()
    assert "For 1 objective the choice was the default." in text
    assert "| con/con |" in text
    assert "the default was chosen |" in text
    assert "24 candidates were trained" in text
    assert "1 failed and have no score" in text
    assert "## How much each setting matters" in text
    assert "Dodge et al. 2019" in text
    assert "The default is always tried first" in text
    assert "A candidate that was stopped early counts with" in text
    names = {str(path.relative_to(report.out_dir)) for path in report.files}
    stem = "coco-vsepp-resnet152"
    assert {f"tuning/{stem}-frozen-r1.png", f"tuning/{stem}-budget.pdf", f"tuning/{stem}-by-tau.png"} <= names
    assert {f"tables/chosen-{stem}.tex", f"tables/tuned-{stem}-frozen-i2t-r1.tex", "budget.csv", "tuning.csv"} <= names
    assert {f"tables/{stem}-frozen-default.tex", f"tables/{stem}-frozen-tuned.tex"} <= {
        name.replace("coco-vsepp-resnet152-frozen", f"{stem}-frozen") for name in names
    }


def test_a_choice_on_the_edge_is_flagged_in_words(report: ReportResult) -> None:
    text = (report.out_dir / "report.md").read_text()
    assert "lr lies on the upper edge of its range for con/con (0.008), con/nca (0.008). A better value may" in text
    assert "| con/nca | no. 3 | 5.798 (59 %) | 0.1238 (21 %) | 0.008 (100 %, upper edge) |" in text
    assert "| sig-ms/cir | no. 2 | 2.226 (27 %) | 0.08709 (11 %) | 0.004 (33 %) |" in text


def test_the_view_of_a_grid_in_mlflow_leaves_the_other_out(sweep: SweepWriter) -> None:
    links = block_links(sweep.uri, "tuned")
    assert [link.title.rsplit(", ", 1)[-1] for link in links] == ["default grid", "tuned grid"]
    assert len({link.address for link in links}) == 2
    assert refresh_summary(sweep.uri, "tuned") == sweep.parent
    note = sweep.client.get_run(str(sweep.parent)).data.tags["mlflow.note.content"]
    assert "Does the ranking survive tuning?" in note


def test_a_sweep_that_is_still_tuning_says_how_far_it_is(
    new_sweep: Callable[[str], SweepWriter], tmp_path_factory: pytest.TempPathFactory
) -> None:
    writer = new_sweep("still tuning")
    content = _content()
    write_parent(writer, content)
    writer.client.set_tag(str(writer.parent), "goal.budget", "6")
    write_candidates(writer, content, finished=4)
    result = write_texts(writer.uri, writer.name, tmp_path_factory.mktemp("still"))
    assert (result.num_expected, result.num_counted) == (24, 0)
    assert result.tuning_notes == ("Still tuning: 4 of 6 candidates per objective; no reporting cell yet.",)
    text = (result.out_dir / "report.md").read_text()
    assert "Still tuning: 4 of 6 candidates per objective; no reporting cell yet." in text
    assert "## The answer" not in text
    with pytest.raises(NoRunsError, match="still tuning"):
        block_links(writer.uri, writer.name)


def test_a_larger_budget_that_still_trains_has_no_choice_yet(new_sweep: Callable[[str], SweepWriter]) -> None:
    writer, content = new_sweep("larger"), tuning(trails=[trail("sig-ms/cir", 2)], budget=2)
    write_parent(writer, content)
    attach(writer, content)
    more = tuning(trails=[trail("sig-ms/cir", 3)])
    write_cell(writer, "sig-ms/cir", 1, "default", DEFAULT)
    write_candidates(writer, more, finished=3)
    assert fetch_runs(writer.uri, writer.name).tuning is not None  # the third is done: the budget was larger once
    more["blocks"][0]["objectives"][0]["candidates"] = [candidate(3, DEFAULT, 300.0)]
    write_candidates(writer, more, finished=3)
    found = fetch_runs(writer.uri, writer.name)
    assert found.tuning is None
    assert found.main_grid == "default"


def test_runs_of_an_earlier_choice_do_not_count(new_sweep: Callable[[str], SweepWriter]) -> None:
    writer, content = new_sweep("earlier"), tuning(trails=[trail("sig-ms/cir", 6)], budget=6)
    write_parent(writer, content)
    attach(writer, content)
    write_grids(writer, content)
    entry = content["blocks"][0]["objectives"][0]
    chosen = entry["candidates"][entry["chosen"]]["values"]
    stale = chosen | {"tau": 19.0}
    write_cell(writer, "sig-ms/cir", 1, "tuned", stale, stage_key="stale", metrics=recalls("sig-ms/cir", 1, 30))
    write_cell(writer, "sig-ms/cir", 2, "former", stale, stage_key="former", metrics=recalls("sig-ms/cir", 1, 30))
    write_cell(writer, "sig-ms/cir", 3, "default,tuned", DEFAULT, stage_key="was the choice")
    found = fetch_runs(writer.uri, writer.name)
    reasons = found.runs.set_index("stage_key")["excluded"]
    assert reasons["stale"] == f"trained with other values than those chosen (tau 19, not {chosen['tau']})"
    assert reasons["former"] == "of an earlier choice (goal.grid former)"
    assert "the same training as run" in reasons["was the choice"]  # of the default grid alone
    assert len(counted(found)) == 6


def test_a_variant_that_was_chosen_is_one_tuned_grid(new_sweep: Callable[[str], SweepWriter]) -> None:
    writer = new_sweep("chosen variant")
    space = [{"key": "objectives.variant", "name": "variant", "kind": "choice", "values": ["paper", "released"]}]
    trails = []
    for objective, chosen in (("con/nca", 0), ("con/cir", 1)):
        own = trail(objective, 2, names=["variant"], chosen=chosen)
        for one, name in zip(own["candidates"], ("paper", "released"), strict=True):
            one["values"] = {"variant": name}
        trails.append(own)
    content = tuning(trails=trails, space=space, budget=2)
    write_parent(writer, content)
    attach(writer, content)
    for seed in (1, 2, 3):
        write_cell(writer, "con/nca", seed, "default,tuned", {})
        write_cell(writer, "con/cir", seed, "default", {}, metrics=recalls("con/cir", seed))
        metrics = recalls("con/cir", seed, 3)
        write_cell(writer, "con/cir", seed, "tuned", {}, metrics=metrics, variant="released")
    default, tuned = aggregate(fetch_runs(writer.uri, writer.name))
    assert [sum(cell.n for cell in block.grids["rsum"].cells.values()) for block in (default, tuned)] == [6, 6]
    assert tuned.key.title == "MS-COCO, VSE++ (resnet152), stage frozen, tuned grid"
    assert len(block_pairs([default, tuned])) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [("{}", "is damaged: not a JSON object with a format"), (json.dumps({"format": 2}), "has format 2")],
)
def test_a_damaged_trail_is_one_error(new_sweep: Callable[[str], SweepWriter], content: str, message: str) -> None:
    writer = new_sweep(f"damaged {message}")
    write_parent(writer, _content())
    attach(writer, content)
    write_cell(writer, "con/con", 1, "default", {})
    with pytest.raises(AnalysisError, match=message):
        fetch_runs(writer.uri, writer.name)


def test_a_sweep_without_tuning_has_no_grids(new_sweep: Callable[[str], SweepWriter]) -> None:
    writer = new_sweep("not tuned")
    content = tuning(trails=[trail("con/con", 1)])
    write_parent(writer, content)
    write_candidates(writer, content)  # of the time when it was tuned
    writer.write("con/con", 1, objective_key="con/con-default", settings_key="lr-default")
    found = fetch_runs(writer.uri, writer.name)
    assert (found.grids, found.tuning, len(counted(found))) == ((), None, 1)
    assert all(block.key.grid == "" for block in aggregate(found))
