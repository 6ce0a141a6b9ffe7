"""The lines that a report says first: what they name, and what they must not claim."""

import re
from collections.abc import Mapping

import numpy as np
import pytest

from goal_sweep.analysis.report.verdict import more_seeds, verdict
from tests.analysis.report.test_sentences import CIR, sweep
from tests.analysis.statistics.test_images import ranks_of
from tests.helpers.results_cases import SweepWriter, inputs_of

LOSS = "con/con (the triplet loss)"


@pytest.mark.parametrize(
    ("shifts", "starts"),
    [
        (
            CIR | {"sig/nca": 3.0},
            ["Use sig/nca: ", f"sig/nca beats {LOSS} significantly: ", "Avoid triplet weight cir ("],
        ),
        (CIR | {"con/con": 3.0}, ["Use con/con: ", "Avoid triplet weight cir ("]),
        (
            {"sig/nca": 0.3},
            ["No winner: sig/nca has the highest mean rsum (", f"Nothing beats {LOSS} significantly: sig/nca is at +"],
        ),
    ],
    ids=["a gain", "the baseline", "nothing"],
)
def test_the_three_lines_of_one_table(shifts: Mapping[str, float], starts: list[str]) -> None:
    lines = verdict(inputs_of(sweep(shifts).results()))
    assert len(lines) == len(starts)
    assert all(line.startswith(start) for line, start in zip(lines, starts, strict=True)), lines
    if starts[0].startswith("Use"):
        of_two = verdict(inputs_of(sweep(shifts, seeds=2).results()))[0]
        assert of_two.endswith("lower. Two seeds may say so by chance.")


def of_few_hits(writer: SweepWriter, images: int = 500) -> SweepWriter:
    """Every rsum 38 lower; of 500 images it is 6.4 by chance, and at most 8.9 for the mean of three seeds."""
    for row in writer.rows:
        row["ranks"] = ranks_of(np.zeros(images, int), np.zeros(images, int), np.ones(images, int))
        row["test/rsum"] -= 38
    return writer


@pytest.mark.parametrize(
    ("shifts", "said"),
    [
        (dict.fromkeys(("con/con", "sig/con"), -12.0), "con/con, sig/con are not shown to be better than chance"),
        ({"con/nca": 3.0, "sig/con": -3.5}, "sig/con is not shown to be better than chance (limit 8.9 of 600), so "),
        (dict.fromkeys(("con/con", "con/nca", "sig/con"), -12.0), "No objective is shown to be better than chance"),
    ],
)
def test_objectives_at_chance_are_named(shifts: Mapping[str, float], said: str) -> None:
    lines = verdict(inputs_of(of_few_hits(sweep(shifts, ["con/con", "con/nca", "sig/con"])).results()))
    found = [any(text in line for line in lines) for text in (said, "Use ", "(the triplet loss)")]
    assert found == [True, len(shifts) < 3, "con/con" not in shifts]
    assert verdict(inputs_of(of_few_hits(sweep({}), images=1).results()))[0].startswith("No winner")  # chance is 600


def test_of_several_tables_that_which_trained_is_named() -> None:
    writer = of_few_hits(sweep({"sig/nca": 3.0}, ["con/con", "sig/nca"], blocks=2))
    for row in writer.rows:
        row["test/rsum"] -= 12 * (row["backbone"] == "b1")
    first, second, third = verdict(inputs_of(writer.results()))
    assert re.search(r"\(b0\), stage frozen: Use sig/nca: .*; con/con is significantly lower\.$", first)
    assert f" (b0), stage frozen: sig/nca beats {LOSS} significantly: " in second
    assert re.match(r"con/con \(in 1 table\), .* are not shown to be better ", third)


def test_nothing_is_claimed_of_one_seed() -> None:
    for blocks in (1, 2):
        (line,) = verdict(inputs_of(sweep(CIR, seeds=1, blocks=blocks).results()))
        assert line.endswith("nothing is tested: add seeds.")
    few = sweep({"sig/nca": 30.0}, ["con/con", "con/nca", "sig/nca", "sig/con"])
    few.rows = [row for row in few.rows if row["seed"] == 1 or row["pair"] + row["triplet"] != "concon"]
    first, second, *_ = verdict(inputs_of(few.results()))
    assert re.match("No winner: sig/nca has .*, but con/con has too few seeds to be tested", first)
    assert second == f"{LOSS} has too few seeds to be compared."


def test_few_objectives_name_the_worst_and_several_tables_are_counted() -> None:
    few = verdict(inputs_of(sweep({"sig/con": -9.0}, ["con/con", "con/nca", "sig/con"]).results()))
    assert re.fullmatch(r"Avoid sig/con \(-[\d.]+ points\) against con/con\.", few[-1])
    several = verdict(inputs_of(sweep(CIR | {"sig-ms/con": 3.0}, blocks=2).results()))
    assert several[0] == "Highest mean rsum in 2 tables: sig-ms/con (2)."
    assert several[1] == f"{LOSS} is beaten significantly in 2 of 2 tables."
    assert several[2].startswith("Avoid triplet weight cir (-")


def test_where_no_weight_is_worse_on_average_single_objectives_are_named() -> None:
    crossed = {"sig/con": 5.0, "lin/nca": 5.0, "sig/nca": -5.0, "lin/con": -5.0}
    last = verdict(inputs_of(sweep(crossed).results()))[-1]
    assert last.startswith(("Avoid sig/nca (-", "Avoid lin/con (-"))
    assert "averaged" not in last


def test_no_weight_of_an_objective_near_the_best_is_to_be_avoided() -> None:
    said = verdict(inputs_of(sweep({"lin/nca": -12.0, "sig/nca": -12.0, "con/nca": -0.1}).results()))
    assert "triplet weight nca" not in " ".join(said)


def test_certainty_has_a_price() -> None:
    """Three seeds of 15 trainings took 9 seconds each, and half a second for val."""
    open_ = sweep({"sig/nca": 1.2}, noise=0.5)
    for row in open_.rows:
        row["val_s"] = 0.5
    inputs = inputs_of(open_.results())
    more = more_seeds(inputs)
    assert more is not None
    found = re.search(
        r"About (\d+) more seeds \((\d+) minutes of device time\) would settle sig/nca against con/con, if means and "
        r"spreads stay\.$",
        verdict(inputs)[1],
    )
    assert found is not None
    assert (int(found[1]), int(found[2])) == (more, round(more * 15 * 9.5 / 60))
    assert len(verdict(inputs)) <= 3
    two = verdict(inputs_of(sweep({"sig/nca": 1.2}, noise=0.5, seeds=2).results()))[1]
    assert two.endswith(
        "would settle sig/nca against con/con, if means and spreads stay; after two seeds that is a rough guess."
    )
    rows = [row for row in open_.rows if row["seed"] != 1]
    open_.rows = rows + [row | {"status": "failed", "seconds": None} for row in open_.rows if row["seed"] == 1]
    assert "of device time" in verdict(inputs_of(open_.results()))[1]


def test_where_seeds_do_not_help_but_images_would_these_are_asked_for() -> None:
    few, draw = sweep({"sig/nca": 1.0}, ["con/con", "sig/nca"], noise=0.2), np.random.default_rng(0).integers
    for row in few.rows:
        row["ranks"] = ranks_of(draw(0, 12, 500), draw(0, 12, 500), np.ones(500, int))
    assert "not settle sig/nca against con/con: more test images are needed." in verdict(inputs_of(few.results()))[1]


@pytest.mark.parametrize(
    ("shifts", "noise", "said"),
    [
        (CIR | {"sig/nca": 3.0}, 0.2, ""),
        (CIR | {"con/con": 3.0}, 0.2, ""),
        ({"con/con": 3.0, "sig/nca": 2.9}, 0.2, "would settle con/con against sig/nca,"),
        ({"sig/nca": 1.0}, 1.0, "Even 100 more seeds would not settle sig/nca against con/con."),
        ({"con/con": 3.0, "sig/nca": 3.2}, 0.5, ""),
    ],
    ids=["settled", "the baseline", "the baseline's rival", "too near", "equal as printed"],
)
def test_a_price_is_named_for_the_best_and_its_rival(shifts: Mapping[str, float], noise: float, said: str) -> None:
    inputs = inputs_of(sweep(shifts, noise=noise).results())
    second = verdict(inputs)[1]
    assert said in second
    assert ("settle" in second) == bool(said)


def test_the_price_of_several_tables_settles_all_that_seeds_can() -> None:
    inputs = inputs_of(sweep({"sig/nca": 1.2}, noise=0.5, blocks=2).results())
    assert re.search(
        r"About \d+ more seeds .* would settle the best in 2 of 2 open tables, if means and spreads stay\.$",
        verdict(inputs)[1],
    )
