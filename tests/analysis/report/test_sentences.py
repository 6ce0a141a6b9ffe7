"""What a report says first: what it names, and what it must not say."""

from collections.abc import Mapping

import numpy as np
import pytest

from goal_sweep.analysis.report.answer import answer_table, answers_of
from goal_sweep.analysis.report.sections.blocks import weights_section
from goal_sweep.analysis.report.sentences import first_words, sentences
from goal_sweep.analysis.statistics.aggregation import aggregate
from goal_sweep.goal_core.evaluation.metrics import METRICS
from tests.helpers.results_cases import NAMES, SweepWriter, inputs_of

CIR = {name: -6.0 for name in NAMES if name.endswith("/cir")}


def sweep(
    shifts: Mapping[str, float], names: list[str] = NAMES, seeds: int = 3, blocks: int = 1, noise: float = 0.2
) -> SweepWriter:
    """Runs of a spread of 0.2 points around 50, but for the objectives that are shifted."""
    generator = np.random.default_rng(4)
    writer = SweepWriter(seeds=range(1, seeds + 1), objectives=names)
    for block in range(blocks):
        for name in names:
            for seed in writer.seeds:
                value = 50 + shifts.get(name, 0.0) + noise * float(generator.normal())
                metrics = {metric.test: value for metric in METRICS.values()}
                writer.write(name, seed, metrics=metrics, backbone=f"b{block}")
    return writer


def said(writer: SweepWriter, measure: str = "R@1") -> str:
    return " ".join(sentences(answers_of(aggregate(writer.results())), measure))


def test_the_sentences_of_one_table_and_of_several() -> None:
    text = said(sweep(CIR | {"sig/nca": 2.0}), "rsum")
    assert "triplet weight cir costs " in text
    assert "pair weight lin" not in text
    several = said(sweep(CIR | {"sig-ms/con": 3.0}, blocks=2))
    assert "triplet weight cir costs " in several
    assert "(4 of 4 tables)" not in several


def test_weights_that_interact_are_said_to() -> None:
    assert "pair and triplet weights interact" in said(sweep(CIR | {"con/cir": 0.0}))
    assert "interact" not in said(sweep(CIR))


@pytest.mark.parametrize(
    ("writer", "expected"),
    [
        (sweep({}, noise=0.0), "Nothing is tested, because no difference varies between seeds."),
        (sweep({}, seeds=1), "No objective has two seeds, so nothing is tested."),
        (sweep({}), "no weight differs significantly."),
    ],
)
def test_what_cannot_be_said_is_said(writer: SweepWriter, expected: str) -> None:
    assert expected in said(writer)


def test_each_weight_has_a_row_with_its_runs() -> None:
    section = weights_section(inputs_of(sweep(CIR).results()))
    assert section is not None
    rows = {row[0]: row for row in section.tables[0].rows}
    assert [row[-1] for row in rows.values()] == ["3"] * 11
    assert rows["triplet weight"][1].endswith(" points, p < 0.001")


def test_the_rows_of_the_answer() -> None:
    writer = sweep({"sig/nca": 3.0}, ["con/con", "con/nca", "sig/con", "sig/nca"])
    writer.write("sig/con", 4, metrics={}, status="failed", backbone="b0")
    writer.seeds = range(1, 5)
    for row in answer_table(answers_of(aggregate(writer.results())), "R@1").rows:
        assert (row[2], row[5], row[6]) == ("sig/nca", "none", "4 of 16 (3 waiting, 1 failed)")
        assert row[3].startswith("53.")
        assert row[4].startswith(("+2.", "+3."))
        assert "not significant" not in row[4]


def test_first_words_of_a_sweep_that_failed_as_a_whole() -> None:
    writer = SweepWriter(seeds=[1], objectives=["con/con", "con/nca"])
    for objective in writer.objectives:
        writer.write(objective, 1, status="failed", reason="no data")
    words = first_words(inputs_of(writer.results()), ["R@1"])
    assert words == ("Nothing is finished, so nothing can be said. 2 of 2: failed: no data",)
