"""What other test images would change, from stored ranks."""

import io

import numpy as np
import pandas as pd
import pytest

from goal_sweep.analysis.statistics.aggregation import few_images_warning, images_text
from goal_sweep.analysis.statistics.comparison import chance_rsum, compare, image_scores, shared_noise
from goal_sweep.goal_core.evaluation.metrics import METRICS, RECALLS_AT, SUMMED

NUM = 400
CAPTIONS = np.tile([1, 5, 3, 7], NUM // 4)


def ranks_of(i2t: np.ndarray, t2i: np.ndarray, captions: np.ndarray = CAPTIONS) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, i2t=i2t, t2i=t2i, captions=captions)
    return file.getvalue()


def runs(image_effect: float) -> pd.DataFrame:
    """Two objectives and three seeds; an image is harder for one objective than for the other, for every seed alike."""
    generator = np.random.default_rng(5)
    easier = {"con": generator.normal(size=NUM), "nca": generator.normal(size=NUM)}
    rows = []
    for triplet, seed in ((triplet, seed) for triplet in easier for seed in (1, 2, 3)):
        difficulty = image_effect * easier[triplet] + generator.normal(size=NUM)
        i2t = (difficulty > 0).astype(int) * 20
        t2i = np.repeat(i2t, CAPTIONS)
        rows.append({"pair": "con", "triplet": triplet, "seed": seed, "ranks": ranks_of(i2t, t2i)})
    return pd.DataFrame(rows)


def test_the_scores_of_images_average_to_the_recall_where_captions_vary() -> None:
    generator = np.random.default_rng(1)
    i2t, t2i = generator.integers(0, 20, NUM), generator.integers(0, 20, CAPTIONS.sum())
    scores = dict(zip(METRICS, image_scores(ranks_of(i2t, t2i)), strict=True))
    for k in RECALLS_AT:
        assert scores[f"i2t_r{k}"].mean() == pytest.approx(100 * (i2t < k).mean())
        assert scores[f"t2i_r{k}"].mean() == pytest.approx(100 * (t2i < k).mean())
    assert scores["rsum"].mean() == pytest.approx(sum(scores[name].mean() for name in SUMMED))


def test_what_images_do_to_every_seed_alike_widens_an_interval_and_single_runs_do_not() -> None:
    values = pd.DataFrame({("con", "con"): [50.0, 50.1, 50.2], ("con", "nca"): [52.0, 52.2, 52.1]})
    pair = (("con", "nca"), ("con", "con"))
    alone = compare(values).differences[pair]
    hard = shared_noise(runs(image_effect=2.0))
    assert hard is not None
    both = compare(values, hard["i2t_r1"])
    assert (both.with_images, alone.verdict) == (True, "better")
    assert both.differences[pair].verdict == "not significant"  # two points are less than other images would change
    easy = shared_noise(runs(image_effect=0.0))
    assert easy is not None
    spread = [frame["i2t_r1"].to_numpy() for frame in (easy, hard)]
    assert spread[0][0, 0] < 0.2 * spread[1][0, 0]


@pytest.mark.parametrize(("number", "few"), [(6, "is ± 40 points"), (99, "is ± 10 points"), (100, "")])
def test_a_report_says_what_chance_and_few_images_do(number: int, few: str) -> None:
    first = np.zeros(number, int)
    ranks = ranks_of(first, first, np.ones(number, int))
    rows = pd.DataFrame({"ranks": [None, ranks]})
    assert images_text(rows) == f"{number} test images; chance R@1 is {100 / number:.3g} %."
    assert few in few_images_warning(rows)
    assert bool(few) == bool(few_images_warning(rows))


def test_chance_is_what_models_of_random_embeddings_reach() -> None:
    generator, found, images = np.random.default_rng(6), [], np.repeat(np.arange(30), 3)
    for _ in range(400):
        scores_NM = generator.normal(size=(30, len(images)))
        best_N = np.where(images == np.arange(30)[:, None], scores_NM, -np.inf).max(axis=1)
        own_M = scores_NM[images, np.arange(len(images))]
        ranks = (scores_NM > best_N[:, None]).sum(axis=1), (scores_NM > own_M).sum(axis=0)
        found.append(100 * sum((own < k).mean() for own in ranks for k in RECALLS_AT))
    mean, error = chance_rsum(np.full(30, 3))
    assert 0.97 < np.mean(np.array(found) <= mean + 2 * error) < 1
    assert chance_rsum(np.array([2])) == (600, 0)  # of one image every recall is 100


def test_without_all_ranks_images_are_not_counted() -> None:
    rows = runs(1.0)
    rows.loc[0, "ranks"] = None
    assert shared_noise(rows) is None
