"""What the report says of the differences, and that it says no more than they hold."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.blocks import Block, BlockKey, CellSummary, Grid
from analysis.report.document import ReportFolder
from analysis.report.significance import significance_section, stage_verdict
from analysis.run_schema import METRICS, PAIRS, TRIPLETS
from analysis.statistics import paired_differences
from tests.helpers.analysis_cases import counted_runs

DRAWN = np.random.default_rng(7)


def lifted(num_blocks: int, lift: float) -> pd.DataFrame:
    """Three seeds of each block and objective, of which sig-ms/cir is better than the others by ``lift``."""
    best = (PAIRS.index("sig-ms"), TRIPLETS.index("cir"))
    blocks = [f"d{block}" for block in range(num_blocks)]
    return counted_runs(lambda b, _, p, t: 50 + b + lift * ((p, t) == best) + DRAWN.normal() * 0.2, 3, blocks)


def test_three_seeds_of_one_block_are_said_to_be_too_few() -> None:
    runs = lifted(1, 8.0)
    text = stage_verdict("frozen", paired_differences(runs), [], None)
    assert "With 3 pairs of runs, no difference from con/con can be significant" in text


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
    assert any(title.startswith("Bootstrap intervals") for title in titles)
    assert any(title.startswith("Ranks over blocks") for title in titles)
    assert all(
        (tmp_path / figure.path).with_suffix(end).is_file() for figure in section.figures for end in (".pdf", ".svg")
    )
    assert "sig-ms/cir has the highest mean R@1" in section.paragraphs[0]
