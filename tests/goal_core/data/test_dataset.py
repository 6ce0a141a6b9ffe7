from pathlib import Path

import numpy as np
import pytest

from goal_sweep.goal_core.basics.errors import DataError
from goal_sweep.goal_core.data import Split
from goal_sweep.goal_core.data.config import KarpathyConfig, RegionsConfig, ScenesConfig
from goal_sweep.goal_core.data.formats.opening import open_dataset
from tests.helpers.counting_reader import CountingReader
from tests.helpers.karpathy_fixture import write_dataset
from tests.helpers.region_files import write_regions


def test_a_split_without_images_is_refused() -> None:
    with pytest.raises(DataError, match="split 'val' has no images"):
        Split(name="val", captions=[], caption_image=np.zeros(0, dtype=np.int64), reader=CountingReader())


@pytest.mark.parametrize("layout", ["karpathy", "regions", "scenes"])
def test_the_first_images_are_those_of_the_whole_split(tmp_path: Path, layout: str) -> None:
    if layout == "karpathy":
        whole = open_dataset(KarpathyConfig(name="t", root=str(write_dataset(tmp_path)))).splits["val"]
    elif layout == "regions":
        whole = open_dataset(RegionsConfig(name="t", root=str(write_regions(tmp_path)))).splits["val"]
    else:
        whole = open_dataset(ScenesConfig(num_train=1, num_val=3, num_test=1)).splits["val"]
    first = whole.first(2)
    assert (first.num_images, first.num_captions, first.name) == (2, 10, "val")
    assert first.captions == whole.captions[:10]
    assert first.caption_image.tolist() == [0] * 5 + [1] * 5
    assert first.region_shape == whole.region_shape
    for index in range(2):
        assert first.reader.label(index) == whole.reader.label(index)
        if layout == "regions":
            assert np.array_equal(first.load_regions(np.array([index])), whole.load_regions(np.array([index])))
        else:
            assert np.array_equal(first.load_image(index), whole.load_image(index))
    assert whole.first(3) is whole
