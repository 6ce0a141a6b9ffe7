"""What the report says of the differences, and that it says no more than they hold."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.blocks import Block, BlockKey, CellSummary, Grid
from analysis.report.document import ReportFolder
from analysis.report.significance import block_verdict, significance_section, stage_verdict
from analysis.run_schema import MAIN_METRICS, METRICS, PAIRS, TRIPLETS, Metric
from analysis.statistics import Effect, compare, crossed_runs, factor_effects, paired_differences, subjects_of
from tests.helpers.analysis_cases import counted_runs

DRAWN = np.random.default_rng(7)


def block_of(values: pd.DataFrame) -> Block:
    """A block whose metrics all have these values, a row for each seed and a column for each objective."""
    found = compare(values)
    cells = {
        (str(p), str(t)): CellSummary(mean=float(column.mean()), std=float(column.std()), n=len(column))
        for (p, t), column in values.items()
    }
    grids = {
        key: Grid(
            metric=metric,
            cells=cells,
            near=found.level,
            without_interval=found.unjudged,
            from_baseline=found.from_baseline,
        )
        for key, metric in METRICS.items()
    }
    key = BlockKey(dataset="d", framework="vsepp", backbone="r", stage="s", variant="paper", data_fingerprint="f")
    return Block(key=key, slug=key.slug, protocol="", grids=grids)


def lifted(num_blocks: int, lift: float) -> pd.DataFrame:
    """Three seeds of each block and objective, of which sig-ms/cir is better than the others by ``lift``."""
    best = (PAIRS.index("sig-ms"), TRIPLETS.index("cir"))
    blocks = [f"d{block}" for block in range(num_blocks)]
    return counted_runs(lambda b, _, p, t: 50 + b + lift * ((p, t) == best) + DRAWN.normal() * 0.2, 3, blocks)


def effects_of(runs: pd.DataFrame) -> dict[Metric, tuple[Effect, ...]]:
    return {metric: factor_effects(subjects_of(runs, metric, ["seed"])) for metric in MAIN_METRICS}


def test_which_weight_matters_is_said_for_both_directions() -> None:
    runs = counted_runs(lambda _b, _s, p, t: 50 + 3 * t + DRAWN.normal() * 0.2)
    runs["test/t2i_r1"] = 30 + 3 * runs["pair"].map(PAIRS.index) + DRAWN.normal(size=len(runs)) * 0.2
    text = stage_verdict("frozen", paired_differences(runs), [("x, over seeds", effects_of(runs))], None)
    forward, backward = text.split("Image → Text: ")[1].split("Text → Image: ")
    assert forward.startswith("the triplet weight matters")
    assert "no evidence of an effect of the pair weight or interaction" in forward
    assert backward.startswith("the pair weight matters")
    assert "no evidence of an effect of the triplet weight or interaction" in backward


def test_of_one_block_nothing_is_said_by_another_rule() -> None:
    runs = lifted(1, 8.0)
    assert stage_verdict("frozen", paired_differences(runs), [], None) == ""


def test_a_blocks_verdict_names_what_is_told_apart_from_the_best_and_from_the_baseline() -> None:
    objectives = list(product(PAIRS, TRIPLETS))
    values = pd.DataFrame(DRAWN.normal(50, 0.2, (3, 15)), columns=pd.MultiIndex.from_tuples(objectives))
    values["sig", "nca"] += 8
    values["con", "con"] -= 4
    block = block_of(values)
    text = block_verdict(block)
    assert "sig/nca has the highest mean R@1" in text
    assert "it is told apart from each of the 14 others" in text
    assert text.count("Told apart from con/con: con/nca (+") == 2
    assert "sig/nca (+1" in text
    one_seed = block_verdict(block_of(values.iloc[:1]))
    assert "with fewer than two seeds in common, there is no interval for its difference from any" in one_seed
    assert "Told apart from con/con" not in one_seed


def test_a_large_effect_over_many_runs_is_named_and_nothing_else() -> None:
    runs = lifted(4, 8.0)
    text = stage_verdict("frozen", paired_differences(runs), [], None)
    named = text.split("not necessarily in all): ")[1]
    assert "sig-ms/cir (+" in named
    assert "con/nca" not in named


def test_the_section_has_words_effects_intervals_ranks_and_a_diagram(tmp_path: Path) -> None:
    runs = lifted(5, 8.0)
    blocks = []
    for name, part in runs.groupby("dataset"):
        key = BlockKey(
            dataset=str(name), framework="vsepp", backbone="r", stage="frozen", variant="paper", data_fingerprint="f"
        )
        grids = {}
        for metric in METRICS.values():
            means = part.groupby(["pair", "triplet"])[metric.test]
            cells = {
                (p, t): CellSummary(mean=float(means.mean()[p, t]), std=float(means.std()[p, t]), n=3)
                for p, t in product(PAIRS, TRIPLETS)
            }
            grids[metric.key] = Grid(metric=metric, cells=cells)
        blocks.append(Block(key=key, slug=key.slug, protocol="", grids=grids))
    section = significance_section(blocks, runs, paired_differences(runs), ReportFolder(tmp_path))
    assert section is not None
    titles = [table.title for table in section.tables]
    assert any(title.startswith("Effects: Stage frozen, over blocks") for title in titles)
    assert any(title.startswith("Ranks over blocks") for title in titles)
    assert all(
        (tmp_path / figure.path).with_suffix(end).is_file() for figure in section.figures for end in (".pdf", ".svg")
    )
    assert "sig-ms/cir has the highest mean R@1" in section.paragraphs[0]


def test_a_users_objectives_do_not_silence_the_effects(tmp_path: Path) -> None:
    runs = counted_runs(lambda _b, _s, p, t: 50 + 3 * t + DRAWN.normal() * 0.2)
    mine = runs[(runs["pair"] == "con") & (runs["triplet"] != "cir")].assign(pair="mine")
    whole = runs[runs["pair"] == "con"].assign(pair="whole")
    crossed = crossed_runs(pd.concat([runs, mine, whole]))
    assert set(crossed["pair"]) == {*PAIRS, "whole"}
    assert effects_of(crossed_runs(pd.concat([runs, mine]))) == effects_of(runs)
    assert crossed_runs(mine).equals(mine)
    block = block_of(runs.pivot(index="seed", columns=["pair", "triplet"], values="test/rsum"))
    section = significance_section(
        [replace(block, key=replace(block.key, stage="frozen"))],
        pd.concat([runs, mine]),
        paired_differences(runs),
        ReportFolder(tmp_path),
    )
    assert section is not None
    assert any("leave out mine/con, mine/nca, which have weights that are not" in text for text in section.paragraphs)
    assert [table.title for table in section.tables] == ["Effects: d, VSE++ (r), stage frozen, over seeds"]
