import numpy as np
import pytest
import torch

from goal_sweep.goal_core.data import ImageConfig
from goal_sweep.goal_core.data.inputs import DecodedImages
from goal_sweep.goal_core.data.transforms import transform_of
from tests.helpers.counting_reader import counted

# Python 3.12 warns when a process with threads forks, which torch's worker processes do.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")

PLAIN = ImageConfig(size=16, resize=20, augment="none")
CROPS = ImageConfig(size=16, resize=20, augment="crop_flip")


def test_images_that_fit_are_read_once() -> None:
    split, reader = counted()
    decoded = DecodedImages(split, CROPS)
    first = torch.cat(list(decoded.chunks(4)))
    assert [len(chunk) for chunk in decoded.chunks(4)] == [4, 4, 3]
    assert torch.equal(torch.cat(list(decoded.chunks(11))), first)
    assert reader.reads == list(range(11))
    assert torch.equal(first[5], transform_of(PLAIN).for_evaluation(split.load_image(5)))


def test_images_over_the_limit_are_read_each_time() -> None:
    split, reader = counted()
    bytes_needed = 11 * 3 * 16 * 16
    fitting = DecodedImages(split, PLAIN, ram_limit=bytes_needed)
    assert torch.equal(torch.cat(list(fitting.chunks(4))), torch.cat(list(fitting.chunks(4))))
    assert len(reader.reads) == 11
    reader.reads.clear()
    decoded = DecodedImages(split, PLAIN, ram_limit=bytes_needed - 1)
    first = torch.cat(list(decoded.chunks(4)))
    assert torch.equal(torch.cat(list(decoded.chunks(4))), first)
    assert len(reader.reads) == 22
    assert torch.equal(first, torch.cat(list(DecodedImages(split, PLAIN).chunks(4))))


@pytest.mark.parametrize("ram_limit", [0, 10**9])
def test_images_in_any_order_with_repeats_and_workers(ram_limit: int) -> None:
    split, _ = counted()
    requests = [np.array(rows) for rows in ([3, 3, 1], [1, 10], [0], [3, 10, 9])]
    decoded = DecodedImages(split, PLAIN, num_workers=2, ram_limit=ram_limit)
    for _ in range(2):
        for request, images in zip(requests, decoded.stream((rows, ()) for rows in requests), strict=True):
            expected = torch.stack(
                [transform_of(PLAIN).for_evaluation(split.load_image(int(index))) for index in request]
            )
            assert torch.equal(images, expected)
    assert torch.equal(torch.cat(list(decoded.chunks(5)))[7], transform_of(PLAIN).for_evaluation(split.load_image(7)))
    decoded.close()
