"""The answer at the top of a report: what it says, and what it must not say."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from goal_sweep.analysis.blocks import Block, CellSummary, Comparison, Difference, Gap, Grid, Objective
from goal_sweep.analysis.report.answer import Answer, answer_table, answers_of
from goal_sweep.analysis.report.finding import finding
from goal_sweep.analysis.wording import signed
from goal_sweep.sweeps.results import BASELINE, METRICS
from tests.helpers.results_cases import example

WINNER = ("sig", "nca")


def block(means: dict[Objective, float], near: set[Objective], reach: float | None = 1.0) -> Block:
    """A block in which every metric has these means, and intervals of all differences reach this far.

    Those near are told apart neither from the best nor, if con/con is among them, is con/con.
    """
    cells = {key: CellSummary(mean=mean, std=0.5, n=3) for key, mean in means.items()}
    best = max(means, key=lambda key: means[key])
    differences = {
        (one, other): _difference(means[one] - means[other], reach, is_level={one, other} <= {best, *near})
        for one, other in permutations(means, 2)
    }
    comparison = Comparison(best=best, differences=differences)
    grids = {key: Grid(metric=metric, cells=cells, comparison=comparison) for key, metric in METRICS.items()}
    return replace(example(), grids=grids)


def _difference(value: float, reach: float | None, *, is_level: bool) -> Difference:
    if reach is None:
        return Difference(estimate=value, low=None, high=None, p=None)
    return Difference(estimate=value, low=value - reach, high=value + reach, p=0.5 if is_level else 0.01)


def unjudged(block: Block, key: Objective) -> Block:
    """The same block, in which no difference of one objective has an interval."""
    grids = {}
    for name, grid in block.grids.items():
        changes = {
            two: replace(change, low=None, high=None, p=None) if key in two else change
            for two, change in grid.comparison.differences.items()
        }
        grids[name] = replace(grid, comparison=replace(grid.comparison, differences=changes))
    return replace(block, grids=grids)


def with_runs(found: Block, runs: dict[Objective, int]) -> Block:
    """The same block, in which these cells have so few runs of three."""
    gaps = (Gap(seed=9, status="failed", reason=""),)
    grids = {}
    for name, grid in found.grids.items():
        few = {key: replace(grid.cells[key], n=n, std=None if n < 2 else 0.5, gaps=gaps) for key, n in runs.items()}
        grids[name] = replace(grid, cells={**grid.cells, **few})
    return replace(found, grids=grids)


def first(found: Block) -> Answer:
    return answers_of([found])[0]


MEANS = {BASELINE: 50.0, ("con", "nca"): 51.9, WINNER: 52.0, ("sig", "con"): 40.0}


def test_the_best_its_gain_and_its_equals() -> None:
    answers = answers_of([block(MEANS, {("con", "nca")})])
    assert len(answers) == 7
    assert answers[0].gain_text == "+2.0 (+1.0 to +3.0)"
    assert answers[0].level_text == "con/nca"
    row = answer_table(answers, "R@1").rows[0]
    assert row[1:] == ("Image → Text R@1", "sig/nca", "52.0 ± 0.5", "+2.0 (+1.0 to +3.0)", "con/nca", "nothing")
    assert "Better than con/con: sig/nca, con/nca (+1.9 to +2.0)" in finding(answers, "R@1")


def test_a_gain_within_noise_is_not_called_one() -> None:
    answers = answers_of([block(MEANS, {("con", "nca"), BASELINE}, reach=3.0)])
    assert not answers[0].is_gain
    assert "No objective is better than con/con by more than noise" in finding(answers, "R@1")
    assert answers[0].level_text == "all others but sig/con"


def test_con_con_as_the_best_has_no_gain() -> None:
    answer = first(block({BASELINE: 50.0, WINNER: 49.0}, set()))
    assert (answer.gain_text, answer.level_text, answer.is_gain) == ("con/con itself", "none", False)


def test_without_con_con_nothing_is_compared_with_it() -> None:
    found = answers_of([block({WINNER: 49.0, ("sig", "con"): 48.0}, {("sig", "con")})])
    assert found[0].gain_text == "no con/con to compare with"
    assert found[0].forest is None
    assert "con/con" not in finding(found, "R@1")
    apart = answers_of([block({WINNER: 49.0, ("sig", "con"): 48.0}, set())])
    assert "There is no con/con to compare with" in finding(apart, "R@1")


def test_one_seed_allows_no_verdict() -> None:
    answers = answers_of([with_runs(block(MEANS, set(), reach=None), dict.fromkeys(MEANS, 1))])
    assert answers[0].gain_text == "+2.0 (no interval)"
    assert answers[0].level_text == "not judged, for lack of runs"
    assert "No objective has two seeds" in finding(answers, "R@1")
    assert not answers[0].is_gain


def test_a_single_run_with_the_highest_mean_is_not_judged() -> None:
    found = with_runs(block(MEANS, set(), reach=None), {WINNER: 1})
    answer = first(found)
    assert answer_table([answer], "R@1").rows[0][2:6] == (
        "sig/nca",
        "52.0 (n = 1)",
        "+2.0 (no interval)",
        "not judged, for lack of runs",
    )
    judged = answers_of([block(MEANS, {("con", "nca")})])[0]
    assert finding([answer], "R@1").startswith("R@1: Too many runs are missing")
    assert "1 table cannot be judged." in finding([judged, answer], "R@1")


def test_what_lacks_runs_is_not_said_to_be_told_apart() -> None:
    found = with_runs(block(MEANS, {("con", "nca")}), {("sig", "con"): 1})
    text = first(unjudged(found, ("sig", "con"))).level_text
    assert text == "con/nca; not judged, for lack of runs: sig/con"


def test_equal_means_are_called_equal() -> None:
    answers = answers_of([block(dict.fromkeys(MEANS, 50.0), set(MEANS) - {BASELINE}, reach=0.0)])
    row = answer_table(answers, "R@1").rows[0]
    assert row[2:6] == ("all equal", "50.0 ± 0.5", "none: con/con is as high", "all 3 others")
    assert finding(answers, "R@1") == "R@1: All objectives have the same mean, to one decimal."


def test_objectives_that_share_the_highest_mean_are_all_named() -> None:
    answers = answers_of([block({**MEANS, ("con", "nca"): 52.01}, {WINNER})])
    assert answers[0].best_text == "con/nca, sig/nca"
    assert answers[0].level_text == "none"
    assert not answers[0].grid.marked


GRID = {
    (pair, triplet): 50.0 - 8 * (triplet == "cir")
    for pair in ("con", "lin", "sig")
    for triplet in ("con", "nca", "cir")
}
LEVEL = {key for key in GRID if key[1] != "cir"}


def test_a_column_that_costs_points_in_every_row_is_the_finding() -> None:
    low = {**GRID, ("sig", "cir"): 35.0}
    text = finding(answers_of([block(low, LEVEL, reach=2.0)]), "R@1")
    assert "riplet weight cir costs 8.0 to 15.0 points against con in every row" in text
    assert "the other 6 objectives cannot be told apart" in text
    assert "at most about 9 more seeds would tell a measured difference of 1 point" in text  # 3 seeds reach 2 points
    assert text.count(". ") == 1
    one = finding(answers_of([block(low, LEVEL)]), "rsum")
    assert "tables" not in one
    assert "more seed" not in one


def test_rows_are_counted_over_directions_and_blocks_and_name_those_of_what_holds_in_some() -> None:
    low, level = block(GRID, LEVEL), block({**GRID, ("con", "cir"): 50.0}, {*LEVEL, ("con", "cir"), ("con", "con")})
    split = block({**GRID, ("lin", "nca"): 52.0}, set())
    for found, told, rest in (
        ((low, level), "in 5 of 6 rows", "the other 6 objectives cannot be told apart."),
        (
            (low, split),
            "in every row",
            "cannot be told apart (text to image). Better than con/con (image to text): lin/nca",
        ),
    ):
        t2i, i2t = (own.grids for own in found)
        mixed = replace(low, grids={key: (t2i if key.startswith("t2i") else i2t)[key] for key in METRICS})
        text = finding(answers_of([mixed]), "R@1")
        assert f"riplet weight cir costs 8.0 points against con {told}" in text
        assert rest in text
    other = replace(mixed, key=replace(mixed.key, backbone="r_50"))
    assert "cannot be told apart in 2 of 4 tables" in finding(answers_of([mixed, other]), "R@1")


def test_a_column_that_gains_in_one_direction_and_costs_in_the_other_is_named_with_both() -> None:
    t2i, i2t = (block({key: 50.0 + change * (key[1] == "cir") for key in GRID}, LEVEL).grids for change in (-8.0, 6.0))
    mixed = replace(example(), grids={key: (t2i if key.startswith("t2i") else i2t)[key] for key in METRICS})
    text = finding(answers_of([mixed]), "R@1")
    both = "gains 6.0 points against con in 2 of 3 rows (image to text) and costs 8.0 points against con in every row"
    assert f"riplet weight cir {both} (text to image); the other 6 objectives cannot be told apart" in text


def test_objectives_that_are_not_judged_are_not_counted_among_equals() -> None:
    some = unjudged(block(GRID, LEVEL, reach=2.0), ("lin", "nca"))
    assert "the other 5 objectives cannot be told apart; 1 not judged" in finding(answers_of([some]), "R@1")
    level = unjudged(block(MEANS, set(MEANS)), ("sig", "con"))
    assert "None of the 3 objectives can be told apart; 1 not judged" in finding(answers_of([level]), "R@1")


def test_seeds_that_agree_exactly_are_the_reason_where_no_run_is_missing() -> None:
    answer = first(block(MEANS, set(), reach=None))
    assert answer.level_text == "not judged, because seeds agree exactly"
    assert "the runs of different seeds agree exactly" in finding([answer], "R@1")


def test_a_con_con_above_all_others_is_said_to_be() -> None:
    text = finding(answers_of([block({**MEANS, BASELINE: 60.0}, set())]), "R@1")
    assert "Every other finished objective is worse than con/con" in text


def test_what_is_below_the_highest_mean_is_named_where_no_row_or_column_is() -> None:
    apart = {BASELINE: 50.0, ("lin", "nca"): 51.0, ("sig", "cir"): 48.0}
    text = finding(answers_of([block(apart, {BASELINE})]), "R@1")
    assert text.startswith("R@1: Below the highest mean by more than noise in every table: sig/cir.")


def test_what_one_direction_tells_apart_is_named_beside_the_other_that_tells_nothing() -> None:
    near, far = block(MEANS, set(MEANS)).grids, block({**MEANS, ("con", "nca"): 49.0, WINNER: 60.0}, set()).grids
    mixed = replace(example(), grids={key: (far if key.startswith("t2i") else near)[key] for key in METRICS})
    text = finding(answers_of([mixed]), "R@1")
    assert (
        "can be told apart (image to text); below the highest mean by more than noise (text to image): con/con" in text
    )


def test_what_cannot_be_told_apart_at_all_needs_no_word_on_con_con() -> None:
    text = finding(answers_of([block(MEANS, set(MEANS), reach=2.0)]), "R@1")
    assert text.startswith("R@1: None of the 4 objectives can be told apart. At most about 9 more seeds")
    assert "con/con" not in text


def test_seeds_do_not_shrink_what_test_images_add() -> None:
    found = block(GRID, LEVEL, reach=2.0)
    for grid in found.grids.values():
        inner = {names: replace(change, of_seeds=1.9) for names, change in grid.comparison.differences.items()}
        vars(grid.comparison)["differences"].update(inner)
    assert "at most about 15 more seeds" in finding(answers_of([found]), "R@1")  # 3 * 1.9² / (1 - 2² + 1.9²) - 3
    for grid in found.grids.values():
        inner = {names: replace(change, of_seeds=0.5) for names, change in grid.comparison.differences.items()}
        vars(grid.comparison)["differences"].update(inner)
        vars(grid.comparison)["beyond_seeds"] = ("test images", "searches")
    assert "takes more seeds, and perhaps more test images or searches" in finding(answers_of([found]), "R@1")
    for grid in found.grids.values():
        vars(grid)["cells"].update({key: replace(grid.cells[key], n=40) for key in GRID})
    assert "takes more test images or searches" in finding(answers_of([found]), "R@1")


def test_a_column_that_is_told_apart_in_no_more_than_half_of_its_rows_is_not_named() -> None:
    text = finding(answers_of([block(GRID, {*LEVEL, ("sig", "cir")})]), "R@1")
    assert "in 4 of 6 rows" in text
    text = finding(answers_of([block(GRID, {*LEVEL, ("sig", "cir"), ("lin", "cir")})]), "R@1")
    assert "costs" not in text


def test_a_row_that_cannot_be_judged_is_not_counted_as_told_apart() -> None:
    text = finding(answers_of([unjudged(block(GRID, LEVEL), ("sig", "cir"))]), "R@1")
    assert "riplet weight cir costs 8.0 points against con in 4 of 6 rows, 2 not judged" in text
    one = unjudged(unjudged(block(GRID, LEVEL), ("sig", "cir")), ("con", "con"))  # a single row is too few
    assert "costs" not in finding(answers_of([one]), "R@1")


def test_a_column_that_costs_points_in_some_tables_alone_is_named_with_these() -> None:
    near, far = (
        block({key: 50.0 - cost * (key[1] == "cir") for key in GRID}, set(level))
        for cost, level in ((0, GRID), (8, LEVEL))
    )
    mixed = replace(near, grids={key: (far if key.startswith("t2i") else near).grids[key] for key in METRICS})
    assert "costs 8.0 points against con in every row (text to image)" in finding(answers_of([mixed]), "R@1")
    other = replace(far, key=replace(far.key, stage="finetune"))
    assert "costs 8.0 points against con in every row of 2 of 4 tables" in finding(answers_of([near, other]), "R@1")


def test_what_is_better_in_every_table_is_told_from_what_is_better_in_some() -> None:
    low, high = ({BASELINE: 50.0, WINNER: 53.0, ("con", "nca"): 50.0 + gain} for gain in (0.5, 2.0))
    blocks = block(low, {BASELINE, ("con", "nca")}), block(high, set())
    for found in blocks[:1]:
        for grid in found.grids.values():
            vars(grid.comparison)["differences"][WINNER, BASELINE] = _difference(3.0, 1.0, is_level=False)
    i2t, t2i = (own.grids for own in blocks)
    mixed = replace(blocks[0], grids={key: (t2i if key.startswith("t2i") else i2t)[key] for key in METRICS})
    said = "etter than con/con in every table: sig/nca (+3.0), and 1 more in some"
    assert said in finding(answers_of([mixed]), "R@1")


def test_what_has_a_single_run_is_called_neither_equal_nor_highest_without_a_judgement() -> None:
    assert ". con/con has too few runs" in finding(answers_of([unjudged(block(GRID, LEVEL), BASELINE)]), "R@1")
    best = unjudged(block(MEANS, {("con", "nca")}), WINNER)
    assert finding(answers_of([best]), "R@1").startswith("R@1: The highest mean has too few runs")


def test_tables_that_disagree_are_not_said_to_show_nothing() -> None:
    i2t, t2i = (block({BASELINE: 50.0, WINNER: 50.0 + gain}, set()).grids for gain in (6, -6))
    mixed = replace(example(), grids={key: (t2i if key.startswith("t2i") else i2t)[key] for key in METRICS})
    assert finding(answers_of([mixed]), "R@1").startswith("R@1: The tables differ in what is below the highest mean")


def test_a_loose_bound_on_seeds_is_not_printed() -> None:
    text = finding(answers_of([block(MEANS, set(MEANS), reach=20.0)]), "R@1")
    assert "may take more than 100 more seeds" in text


def test_a_lone_objective_has_nothing_to_be_compared_with() -> None:
    answers = answers_of([block({BASELINE: 50.0}, set())])
    assert answers[0].level_text == "no other objective"
    assert finding(answers, "R@1") == "R@1: Only con/con has results, so there is nothing to compare it with."


def test_what_is_missing_is_counted_by_status() -> None:
    found = block(MEANS, set())
    gaps = (Gap(seed=1, status="failed", reason="NaN"), Gap(seed=2, status="absent", reason=""))
    grids = {
        key: replace(grid, cells={**grid.cells, WINNER: CellSummary(mean=52.0, std=None, n=1, gaps=gaps)})
        for key, grid in found.grids.items()
    }
    row = answer_table(answers_of([replace(found, grids=grids)]), "R@1").rows[0]
    assert row[-1] == "2 of 12 (1 failed, 1 absent)"


@pytest.mark.parametrize(("value", "text"), [(1.72, "+1.7"), (-0.04, "0.0"), (0.0, "0.0"), (-0.06, "-0.1")])
def test_a_difference_of_nothing_has_no_sign(value: float, text: str) -> None:
    assert signed(value) == text
