"""The paper's own tables and ranks."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from analysis.figures.comparisons import draw_rank_diagram
from analysis.published.numbers import published_blocks
from analysis.report.published_tables import render_published
from analysis.statistics.ranks import rank_objectives


def test_rendering_writes_all_blocks(tmp_path: Path) -> None:
    files = render_published(tmp_path)
    # Tables in three forms, heatmaps in two; five stacked tables.
    assert len(files) == 10 * 5 + 5
    assert all(file.stat().st_size > 500 for file in files)
    text = (tmp_path / "tables" / "coco-vse_infty-wsl-train.md").read_text()
    row = "| **P sig-ms** | 70.3 ± 0.2 | **71.5 ± 0.4** | 71.4 ± 0.5 | 53.9 ± 0.4 | **54.2 ± 0.0** | 53.6 ± 0.6 |"
    assert row in text.replace(" ≈", "").replace("<u>", "").replace("</u>", "")
    assert "arXiv:2210.13188" in text


def test_the_published_blocks_rank_as_their_tables_say() -> None:
    grids = {block.slug: block.grids["i2t_r1"] for block in published_blocks() if "i2t_r1" in block.grids}
    means = {slug: {"/".join(key): mean for key, mean in grid.means.items()} for slug, grid in grids.items()}
    ranks = rank_objectives(pd.DataFrame(means).T)
    assert ranks is not None
    assert ranks.num_blocks == 10
    assert next(iter(ranks.mean_ranks)) == "sig-ms/cir"
    assert list(ranks.mean_ranks)[-1] == "con/con"
    assert ranks.p < 1e-6
    figure = draw_rank_diagram(ranks, "published")
    labels = " ".join(text.get_text() for text in figure.axes[0].texts)
    assert all(name in labels for name in ranks.mean_ranks)
