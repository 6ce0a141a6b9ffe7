"""What the report says of weights and their effects, and that it says no more than they hold."""

from __future__ import annotations

import numpy as np

from goal_sweep.analysis.report.sections.weights import weights_section
from goal_sweep.analysis.statistics.effects import EFFECTS
from goal_sweep.sweeps.results import METRICS, PAIRS, TRIPLETS
from tests.helpers.results_cases import NAMES, SweepWriter, inputs_of

DRAWN = np.random.default_rng(7)


def lifted(num_blocks: int, lift: float, seeds: int = 3) -> SweepWriter:
    """The runs of each block and objective, of which sig-ms/cir is better than the others by ``lift``."""
    writer = SweepWriter(seeds=range(1, seeds + 1))
    for block in range(num_blocks):
        for name in NAMES:
            for seed in writer.seeds:
                value = 50 + block + lift * (name == "sig-ms/cir") + float(DRAWN.normal()) * 0.2
                metrics = {metric.test: value for metric in METRICS.values()}
                writer.write(name, seed, metrics=metrics, backbone=f"b{block}")
    return writer


def test_the_section_has_means_and_effects_of_each_block_and_of_all() -> None:
    section = weights_section(inputs_of(lifted(5, 8.0).results()))
    assert section is not None
    assert len(section.tables) == 6
    *blocks, over = section.tables
    names = [*(f"P {p}" for p in PAIRS), *(f"T {t}" for t in TRIPLETS), *EFFECTS.values()]
    assert [row[0] for row in blocks[0].rows] == names
    assert [row[0] for row in over.rows] == [*EFFECTS.values()]
    assert over.rows[2][3].endswith("points, p < 0.001")
    assert (blocks[0].rows[-1][-1], over.rows[-1][-1]) == ("3", "5")


def test_two_blocks_have_no_effects_over_blocks_and_a_lone_objective_no_section() -> None:
    section = weights_section(inputs_of(lifted(2, 8.0).results()))
    assert section is not None
    assert len(section.tables) == 2
    alone = SweepWriter(objectives=["con/con"])
    alone.write_all()
    assert weights_section(inputs_of(alone.results())) is None


def test_seeds_that_lack_objectives_are_named() -> None:
    writer = lifted(1, 8.0)
    del writer.rows[0]
    section = weights_section(inputs_of(writer.results()))
    assert section is not None
    assert any("1 seed without all objectives" in text and "use 2 seeds" in text for text in section.paragraphs)


def test_weights_that_are_not_combined_with_all_are_left_out_by_name() -> None:
    writer = lifted(1, 8.0)
    writer.objectives = [*NAMES, "con/own"]
    for seed in writer.seeds:
        writer.write("con/own", seed, metrics={metric.test: 1.0 for metric in METRICS.values()})
    section = weights_section(inputs_of(writer.results()))
    assert section is not None
    assert any(text.endswith("weight: con/own.") for text in section.paragraphs)
