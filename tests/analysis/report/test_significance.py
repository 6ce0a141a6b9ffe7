"""Ranks, effects, intervals and the words made of them, against other libraries and against data of known effects."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scikit_posthocs
import statsmodels.formula.api as formula
from scipy import stats
from statsmodels.stats.anova import AnovaRM, anova_lm

from analysis.figures.rank_diagram import draw_rank_diagram
from analysis.published import published_blocks
from analysis.report.manifest import ReportFolder
from analysis.report.significance import _effect_table, published_significance, significance_chapter
from analysis.report.verdict import stage_verdict
from analysis.statistics.bootstrap import mean_interval
from analysis.statistics.effects import factor_effects
from analysis.statistics.noise import paired_within_noise, summary_within_noise
from analysis.statistics.paired import _paired, paired_differences
from analysis.statistics.ranks import rank_objectives
from analysis.tracking.run_schema import COLUMNS, PAIRS, TRIPLETS, metric_key

DRAWN = np.random.default_rng(7)


def table(num_blocks: int, num_objectives: int, effect: float = 0.0) -> pd.DataFrame:
    noise = DRAWN.normal(size=(num_blocks, num_objectives)) + DRAWN.normal(size=(num_blocks, 1)) * 5
    columns = [f"o{i:02d}" for i in range(num_objectives)]
    return pd.DataFrame(noise + effect * np.arange(num_objectives), columns=columns)


def subjects(num: int, pair: float = 0.0, triplet: float = 0.0) -> pd.DataFrame:
    rows = []
    for subject in range(num):
        base = DRAWN.normal() * 3
        for (p, a), (t, b) in product(enumerate(PAIRS), enumerate(TRIPLETS)):
            rows.append((str(subject), a, b, base + pair * p + triplet * t + DRAWN.normal()))
    return pd.DataFrame(rows, columns=["subject", "pair", "triplet", "value"])


def test_ranks_and_nemenyi_agree_with_scikit_posthocs() -> None:
    means = table(8, 6, effect=0.4)
    ours = rank_objectives(means)
    assert ours is not None
    theirs = scikit_posthocs.posthoc_nemenyi_friedman(means)
    names = list(ours.mean_ranks)
    for one, other in product(names, names):
        assert ours.p_between(one, other) == pytest.approx(theirs.loc[one, other], abs=1e-6)
    assert ours.friedman == pytest.approx(stats.friedmanchisquare(*means.to_numpy().T).statistic)
    # Demšar 2006, table 5: the critical value for 5 classifiers at 5 % is 2.728.
    five = rank_objectives(table(14, 5))
    assert five is not None
    assert five.critical_difference == pytest.approx(2.728 * (5 * 6 / (6 * 14)) ** 0.5, rel=1e-3)


def test_ties_share_ranks_and_blocks_with_gaps_are_left_out() -> None:
    means = pd.DataFrame({"a": [3.0, 3.0, 3.0, 9.0], "b": [3.0, 3.0, 3.0, 1.0], "c": [1.0, 1.0, 1.0, np.nan]})
    ranks = rank_objectives(means)
    assert ranks is not None
    assert ranks.num_blocks == 3
    assert ranks.mean_ranks == {"a": 1.5, "b": 1.5, "c": 3.0}
    assert rank_objectives(means.iloc[:2]) is None


def test_ranks_reject_a_true_null_no_more_often_than_stated() -> None:
    rejected = [bool(ranks.p < 0.05) for _ in range(300) if (ranks := rank_objectives(table(10, 4)))]
    assert len(rejected) == 300
    assert np.mean(rejected) < 0.05 + 3 * (0.05 * 0.95 / 300) ** 0.5


def test_effects_agree_with_least_squares_sums_of_squares() -> None:
    data = subjects(4, pair=0.5, triplet=0.2)
    squares = anova_lm(
        formula.ols(
            "value ~ C(subject) + C(pair) * C(triplet) + C(subject):C(pair) + C(subject):C(triplet)", data
        ).fit()
    )
    effects = {e.name: e for e in factor_effects(data)}
    for name, error in (
        ("pair", "C(subject):C(pair)"),
        ("triplet", "C(subject):C(triplet)"),
        ("pair:triplet", "Residual"),
    ):
        row = squares.loc[":".join(f"C({word})" for word in name.split(":"))]
        f = row["mean_sq"] / squares.loc[error, "mean_sq"]
        assert effects[name].f == pytest.approx(f)
        share = row["sum_sq"] / (row["sum_sq"] + squares.loc[error, "sum_sq"])
        assert effects[name].partial_eta_squared == pytest.approx(share)
        assert effects[name].p == pytest.approx(stats.f.sf(f, row["df"], squares.loc[error, "df"]))
        low, high = effects[name].eta_low, effects[name].eta_high
        assert 0 <= low <= high < 1


@pytest.mark.parametrize("num", [2, 5])
def test_effects_agree_with_statsmodels(num: int) -> None:
    data = subjects(num, pair=0.5, triplet=1.0)
    theirs = AnovaRM(data, "value", "subject", within=["pair", "triplet"]).fit().anova_table
    for ours in factor_effects(data.sample(frac=1, random_state=1)):
        row = theirs.loc[ours.name]
        assert (ours.df, ours.df_error) == (row["Num DF"], row["Den DF"])
        assert ours.f == pytest.approx(row["F Value"])
        assert ours.p == pytest.approx(row["Pr > F"])


def test_effects_find_what_is_there_and_not_what_is_not() -> None:
    found = {"pair": 0, "triplet": 0, "pair:triplet": 0}
    runs = 100
    for _ in range(runs):
        for effect in factor_effects(subjects(5, pair=1.0)):
            found[effect.name] += effect.p < 0.05
            # The corrected p never claims more.
            assert effect.p_corrected >= effect.p or effect.p > 0.2
    assert found["pair"] > 0.95 * runs
    limit = runs * (0.05 + 3 * (0.05 * 0.95 / runs) ** 0.5)
    assert found["triplet"] < limit
    assert found["pair:triplet"] < limit


def test_an_effects_interval_inverts_the_noncentral_f() -> None:
    effect = next(e for e in factor_effects(subjects(4, pair=1.0)) if e.name == "pair")
    for end, level in ((effect.eta_low, 0.975), (effect.eta_high, 0.025)):
        noncentrality = end * (effect.df + effect.df_error + 1) / (1 - end)
        assert stats.ncf.cdf(effect.f, effect.df, effect.df_error, noncentrality) == pytest.approx(level, abs=1e-6)


def test_an_effect_beyond_all_noise_has_no_interval_and_is_still_printed(tmp_path: Path) -> None:
    data = subjects(4, pair=1.0, triplet=1.0)
    noise = DRAWN.normal(size=len(data)) * 1e-11
    steps = data["pair"].map(PAIRS.index) + data["triplet"].map(TRIPLETS.index) * data["pair"].map(PAIRS.index)
    effects = factor_effects(data.assign(value=steps + noise))
    assert [effect.name for effect in effects] == ["pair", "triplet", "pair:triplet"]
    assert all(effect.f > 1e15 and math.isnan(effect.eta_low) and math.isnan(effect.eta_high) for effect in effects)
    shown = _effect_table("x", {("i2t", "R@1"): effects}).rows
    assert [row[6] for row in shown] == ["1.00"] * 3


def test_subjects_with_a_gap_are_left_out_and_one_is_too_few() -> None:
    data = subjects(3)
    assert factor_effects(data.iloc[1:])[0].subjects == 2
    assert factor_effects(data[data["subject"] == "0"]) == ()
    assert factor_effects(data[data["pair"] == "con"]) == ()


def sample(blocks: int, seeds: int, truth: float) -> pd.Series:
    values = truth + DRAWN.normal(size=(blocks, seeds))
    index = pd.MultiIndex.from_product([[f"b{i}" for i in range(blocks)], range(seeds)], names=["block", "seed"])
    return pd.Series(values.ravel(), index=index)


def test_bootstrap_intervals_cover_as_often_as_stated() -> None:
    for blocks, seeds in ((5, 3), (10, 3), (2, 6)):
        hits = 0
        for _ in range(200):
            interval = mean_interval(sample(blocks, seeds, 2.0), ["block"])
            assert interval is not None
            hits += interval.low <= 2.0 <= interval.high
        # At the fewest runs that are accepted the percentile interval is known to be a little narrow.
        assert hits / 200 > 0.95 - 0.03 - 3 * (0.95 * 0.05 / 200) ** 0.5


def test_bootstrap_is_refused_where_it_would_be_too_narrow_and_repeats_itself() -> None:
    assert mean_interval(sample(1, 3, 0.0), ["block"]) is None
    assert mean_interval(sample(4, 3, 0.0), ["block"]) is None
    assert mean_interval(sample(30, 1, 0.0), ["block"]) is None
    values = sample(5, 3, 1.0)
    assert mean_interval(values, ["block"]) == mean_interval(
        values.sample(frac=1, random_state=1).sort_index(), ["block"]
    )


def runs_frame(num_blocks: int, seeds: int, lift: dict[str, float]) -> pd.DataFrame:
    rows = []
    for block, seed, pair, triplet in product(range(num_blocks), range(seeds), PAIRS, TRIPLETS):
        row = {"dataset": f"d{block}", "framework": "vsepp", "backbone": "r", "variant": "paper", "stage": "frozen"}
        row |= {"data_fingerprint": "f", "pair": pair, "triplet": triplet, "seed": seed}
        value = 50 + block + lift.get(f"{pair}/{triplet}", 0.0) + DRAWN.normal() * 0.2
        rows.append(row | {metric_key(*column): value for column in COLUMNS})
    return pd.DataFrame(rows)


def test_three_seeds_of_one_block_are_said_to_be_too_few() -> None:
    runs = runs_frame(1, 3, {"sig-ms/cir": 8.0})
    text = stage_verdict("frozen", paired_differences(runs), [], None)
    assert "3 pairs of runs are too few to call any difference from con/con significant" in text
    values = {
        f"{pair}/{triplet}": part.set_index("seed")["test/i2t_r1"]
        for (pair, triplet), part in runs.groupby(["pair", "triplet"])
    }
    assert not paired_within_noise(values["sig-ms/cir"], values["con/con"])
    assert paired_within_noise(values["con/con"], values["con/con"] + pd.Series([0.3, -0.2, 0.1]))


def test_unpaired_noise_agrees_with_welchs_test_of_scipy() -> None:
    for mean in (50.2, 50.6, 51.5, 53.0):
        p = stats.ttest_ind_from_stats(50.0, 0.4, 3, mean, 0.6, 3, equal_var=False).pvalue
        assert summary_within_noise(50.0, 0.4, mean, 0.6, 3) == (p >= 0.05)


def test_differences_over_blocks_that_differ_are_covered_as_often_as_stated() -> None:
    covered, runs = 0, 300
    for _ in range(runs):
        truth = DRAWN.normal(size=5)  # of each block
        values = truth[:, None] + 0.3 * DRAWN.normal(size=(5, 3))
        index = pd.MultiIndex.from_product([[f"b{i}" for i in range(5)], range(3)])
        found = _paired(pd.Series(values.ravel(), index=index), 0.95)
        covered += found["low"] <= truth.mean() <= found["high"]
    assert abs(covered / runs - 0.95) < 3 * (0.95 * 0.05 / runs) ** 0.5


def test_a_large_effect_over_many_runs_is_named_and_nothing_else() -> None:
    runs = runs_frame(4, 3, {"sig-ms/cir": 8.0})
    text = stage_verdict("frozen", paired_differences(runs), [], None)
    named = text.split("it need not be in all: ")[1]
    assert "sig-ms/cir (+" in named
    assert "con/nca" not in named


def test_the_chapter_has_words_effects_intervals_ranks_and_a_diagram(tmp_path: Path) -> None:
    from analysis.tracking.blocks import Block, BlockKey, CellSummary, Grid

    runs = runs_frame(5, 3, {"sig-ms/cir": 8.0})
    blocks = []
    for name, part in runs.groupby("dataset"):
        key = BlockKey(
            dataset=str(name), framework="vsepp", backbone="r", stage="frozen", variant="paper", data_fingerprint="f"
        )
        grids = {}
        for column in COLUMNS:
            means = part.groupby(["pair", "triplet"])[metric_key(*column)]
            cells = {
                (p, t): CellSummary(mean=float(means.mean()[p, t]), std=float(means.std()[p, t]), n=3)
                for p, t in product(PAIRS, TRIPLETS)
            }
            grids[column] = Grid(direction=column[0], metric=column[1], cells=cells)
        blocks.append(Block(key=key, slug=key.slug, protocol="", grids=grids))
    chapter = significance_chapter(blocks, runs, paired_differences(runs), ReportFolder(tmp_path))
    assert chapter is not None
    titles = [table.title for table in chapter.tables]
    assert any(title.startswith("Effects: Stage frozen, over blocks") for title in titles)
    assert any(title.startswith("Bootstrap intervals") for title in titles)
    assert any(title.startswith("Ranks over blocks") for title in titles)
    assert all(
        (tmp_path / figure.path).with_suffix(end).is_file() for figure in chapter.figures for end in (".pdf", ".svg")
    )
    assert "sig-ms/cir has the highest mean R@1" in chapter.paragraphs[0]


def test_the_published_blocks_rank_as_their_tables_say() -> None:
    ranks = published_significance(published_blocks())["i2t", "R@1"]
    assert ranks.num_blocks == 10
    assert next(iter(ranks.mean_ranks)) == "sig-ms/cir"
    assert list(ranks.mean_ranks)[-1] == "con/con"
    assert ranks.p < 1e-6
    figure = draw_rank_diagram(ranks, "published")
    labels = " ".join(text.get_text() for text in figure.axes[0].texts)
    assert all(name in labels for name in ranks.mean_ranks)
