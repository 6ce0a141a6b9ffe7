"""Two objectives query by query, from stored ranks."""

import numpy as np
import pytest

from goal_sweep.analysis.statistics.pair import WordCount, pair_of
from goal_sweep.sweeps.results import ResultsError
from tests.analysis.statistics.test_images import ranks_of
from tests.helpers.results_cases import SweepWriter, inputs_of

ONE, OTHER = "con/nca", "con/con"
NUM = 30


def writer(*seeds: int, hits: dict[str, list[int]], backbone: str = "resnet152") -> SweepWriter:
    """Two objectives that are right for the first so many of 30 images and of 60 captions, one number for each seed."""
    made = SweepWriter(seeds=(1, 2), objectives=[ONE, OTHER])
    for objective, numbers in hits.items():
        for seed, number in zip(seeds, numbers, strict=True):
            i2t, t2i = (np.arange(size) >= number for size in (NUM, 2 * NUM))
            metrics = {f"test/{name}": 10.0 for name in ("i2t_r5", "i2t_r10", "t2i_r5", "t2i_r10", "rsum")}
            metrics |= {"test/i2t_r1": 100 * number / NUM, "test/t2i_r1": 50 * number / NUM}
            ranks = ranks_of(i2t.astype(np.uint8), t2i.astype(np.uint8), np.full(NUM, 2))
            made.write(objective, seed, metrics=metrics, ranks=ranks, backbone=backbone)
    return made


def test_outcomes_add_up_to_the_recalls_and_the_difference_is_that_of_the_report() -> None:
    inputs = inputs_of(writer(1, 2, hits={ONE: [20, 19], OTHER: [12, 13]}).results())
    pair = pair_of(inputs, ONE, OTHER)
    assert pair.counts("i2t") == {"both right": 25, f"only {ONE}": 14, f"only {OTHER}": 0, "neither": 21}
    assert pair.counts("t2i") == {"both right": 25, f"only {ONE}": 14, f"only {OTHER}": 0, "neither": 81}
    assert pair.words("i2t", [{"a"}] * NUM) == [[], []]  # one objective alone leads
    assert pair.means("i2t") == ["65.0 ± 2.4", "41.7 ± 2.4"]
    (block,) = inputs.blocks
    change = block.grids["i2t_r1"].comparison.from_baseline["con", "nca"]
    assert (pair.difference("i2t"), change.verdict) == (f"{change.text}, not significant", "not significant")
    assert pair_of(inputs, OTHER, ONE).counts("i2t")[f"only {ONE}"] == 14


def test_words_are_listed_where_they_occur_more_often_than_expected() -> None:
    made = writer(1, 2, hits={ONE: [12, 12], OTHER: [0, 0]})
    for row in made.rows[2:]:  # right for the last six images alone
        row["ranks"] = ranks_of((np.arange(NUM) < 24).astype(np.uint8), np.ones(2 * NUM, np.uint8), np.full(NUM, 2))
    pair = pair_of(inputs_of(made.results()), ONE, OTHER)
    found = pair.words("i2t", [{"a", "few" if image < 24 else "flag"} for image in range(NUM)])
    assert found == [[WordCount("few", 12, 0, 12 * 12 / 18)], [WordCount("flag", 6, 0, 6 * 6 / 18)]]
    assert pair.words("i2t", []) == [[], []]


def test_those_come_first_where_more_seeds_differ() -> None:
    pair = pair_of(inputs_of(writer(1, 2, hits={ONE: [20, 20], OTHER: [10, 18]}).results()), ONE, OTHER)
    only = pair.hits["i2t"][0, 0] & ~pair.hits["i2t"][1, 0]
    assert set(pair.drawn("i2t", only, 2, 1)) == {18, 19}
    assert set(pair.drawn("i2t", only, 8, -1)) == set(range(10, 18))
    assert set(pair.drawn("i2t", only, 99, 0)) == set(range(10, 20))


def test_seeds_count_that_are_finished_for_both() -> None:
    made = writer(1, 2, hits={ONE: [20, 19]})
    made.rows += writer(2, hits={OTHER: [12]}).rows
    pair = pair_of(inputs_of(made.results()), ONE, OTHER)
    assert pair.seeds == [2]
    assert pair.seeds_text == "seed 2 (seed 1 not finished for both)"
    assert sum(pair.counts("i2t").values()) == NUM


@pytest.mark.parametrize(
    ("first", "second", "options", "message"),
    [
        ("con/nka", OTHER, {}, "no objective 'con/nka'; it has con/nca, con/con"),
        (ONE, ONE, {}, "given twice"),
        (ONE, OTHER, {"stage": "finetune"}, "no table of stage 'finetune'; its stages: frozen"),
        (ONE, OTHER, {}, "give --backbone, one of resnet152, vit"),
        (ONE, OTHER, {"backbone": "vgg"}, "give --backbone, one of resnet152, vit; got 'vgg'"),
        (ONE, OTHER, {"backbone": "resnet152"}, "no seed is finished for both"),
    ],
)
def test_what_cannot_be_compared_is_said_in_one_line(
    first: str, second: str, options: dict[str, str], message: str
) -> None:
    made = writer(1, hits={ONE: [20]})
    made.rows += writer(1, 2, hits={ONE: [20, 19], OTHER: [12, 13]}, backbone="vit").rows
    inputs = inputs_of(made.results())
    with pytest.raises(ResultsError) as error:
        pair_of(inputs, first, second, **options)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert pair_of(inputs, ONE, OTHER, backbone="vit").seeds == [1, 2]
