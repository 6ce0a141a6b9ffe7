from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from goal_sweep.goal_core.basics.errors import ConfigError, DataError
from goal_sweep.goal_core.basics.numerics import derive_seed
from goal_sweep.goal_core.data import ImageConfig, Split, num_batches
from goal_sweep.goal_core.data.batches import Batch, BatchSource, batch_indices, epoch_order
from goal_sweep.goal_core.data.config import KarpathyConfig
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.data.text import Vocabulary
from goal_sweep.goal_core.data.transforms import transform_of
from tests.helpers.counting_reader import counted
from tests.helpers.karpathy_fixture import write_dataset
from tests.helpers.properties import given, st

# Python 3.12 warns when a process with threads forks, which torch's worker processes do.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")

PLAIN = ImageConfig(size=16, resize=20, augment="none")
CROPS = ImageConfig(size=16, resize=20, augment="crop_flip")


def source(
    split: Split, image: ImageConfig = PLAIN, batch_size: int = 8, seed: int = 3, **options: object
) -> BatchSource:
    vocabulary = Vocabulary.build(split.captions, 1)
    return BatchSource(split, vocabulary, image, batch_size=batch_size, seed=seed, **options)  # type: ignore[arg-type]


def same(one: Batch, two: Batch) -> bool:
    names = ("image_index", "tokens", "lengths")
    if (one.images is None) != (two.images is None):
        return False
    images = one.images is None or two.images is None or torch.equal(one.images, two.images)
    return images and all(torch.equal(getattr(one, name), getattr(two, name)) for name in names)


def all_same(ones: Iterator[Batch] | list[Batch], twos: Iterator[Batch] | list[Batch]) -> bool:
    return all(same(one, two) for one, two in zip(ones, twos, strict=True))


@given(st.integers(1, 300), st.integers(0, 10), st.integers(1, 30))
def test_the_order_is_a_permutation_that_its_arguments_alone_give(num_captions: int, seed: int, epoch: int) -> None:
    order = epoch_order(num_captions, seed, epoch)
    assert order.dtype == np.int64
    assert np.array_equal(np.sort(order), np.arange(num_captions))
    np.random.rand(2)
    assert np.array_equal(order, epoch_order(num_captions, seed, epoch))


def test_the_order_is_pinned() -> None:
    # A change here changes every trained number; so does a numpy that changes its raw PCG64 stream.
    assert epoch_order(8, 1, 1).tolist() == [4, 3, 6, 7, 2, 0, 5, 1]
    assert derive_seed(1, "augment", 2, 3) == 3_823_586_506_043_343_724


@given(st.integers(2, 200), st.integers(2, 50), st.booleans())
def test_batches_cover_the_order(num_captions: int, batch_size: int, drop_last: bool) -> None:
    parts = list(batch_indices(np.arange(num_captions), batch_size, drop_last))
    assert len(parts) == num_batches(num_captions, batch_size, drop_last)
    assert all(len(part) == batch_size for part in parts[:-1])
    assert all(2 <= len(part) <= batch_size for part in parts)
    covered = sum(map(len, parts))
    rest = num_captions % batch_size
    assert covered == num_captions - (rest if drop_last or rest == 1 else 0)
    assert np.array_equal(np.concatenate(parts) if parts else np.arange(0), np.arange(covered))


@pytest.mark.parametrize("image", [PLAIN, CROPS])
def test_a_batch_holds_its_pairs(image: ImageConfig) -> None:
    split, _ = counted()
    vocabulary = Vocabulary.build(split.captions, 1)
    made = list(source(split, image).batches(2))
    assert [len(batch) for batch in made] == [8, 8, 8, 8]
    for number, batch in enumerate(made):
        captions = epoch_order(33, 3, 2)[8 * number : 8 * number + 8].tolist()
        assert batch.images is not None
        assert batch.images.shape == (8, 3, 16, 16)
        assert batch.images.dtype == torch.uint8
        assert batch.tokens.shape == (8, int(batch.lengths.max()))
        for row, (caption, index) in enumerate(zip(captions, batch.image_index.tolist(), strict=True)):
            assert index == split.caption_image[caption] == caption // 3
            encoded = vocabulary.encode(split.captions[caption])
            assert batch.tokens[row].tolist() == encoded + [0] * (batch.tokens.shape[1] - len(encoded))
            assert batch.lengths[row] == len(encoded)
            pixels = split.load_image(index)
            expected = (
                transform_of(image).for_evaluation(pixels)
                if image is PLAIN
                else transform_of(image).for_training(pixels, derive_seed(3, "augment", 2, caption))
            )
            assert torch.equal(batch.images[row], expected)


@pytest.mark.parametrize("image", [PLAIN, CROPS])
def test_an_epoch_starts_at_any_step_without_reading_the_earlier_ones(image: ImageConfig) -> None:
    split, _ = counted()
    whole = list(source(split, image).batches(5))
    for start in range(5):
        fresh, reader = counted()
        assert all_same(source(fresh, image).batches(5, start_step=start), whole[start:])
        assert set(reader.reads) == {int(index) for batch in whole[start:] for index in batch.image_index}


@pytest.mark.parametrize("image", [PLAIN, CROPS])
@pytest.mark.parametrize("num_workers", [1, 2])
def test_workers_change_nothing(image: ImageConfig, num_workers: int, tmp_path: Path) -> None:
    config = KarpathyConfig(name="tiny", root=str(write_dataset(tmp_path)), image=image)
    split = open_dataset(config).splits["train"]
    alone, helped = source(split, image), source(split, image, num_workers=num_workers)
    state = torch.get_rng_state()
    for epoch, start in ((1, 0), (2, 0), (2, 3)):
        assert all_same(helped.batches(epoch, start), alone.batches(epoch, start))
    assert torch.equal(torch.get_rng_state(), state)
    helped.close()


def test_an_abandoned_epoch_leaves_the_workers_usable() -> None:
    split, _ = counted()
    helped = source(split, CROPS, num_workers=2)
    abandoned = helped.batches(1)
    next(abandoned)
    assert all_same(helped.batches(2), source(split, CROPS).batches(2))
    with pytest.raises(RuntimeError, match="a newer one was started"):
        next(abandoned)
    helped.close()
    assert all_same(helped.batches(3, 2), source(split, CROPS).batches(3, 2))
    helped.close()


def test_a_batch_larger_than_the_data_is_refused() -> None:
    split, _ = counted()
    assert len(next(source(split, batch_size=33).batches(1))) == 33
    with pytest.raises(ConfigError, match="must not exceed the 33 train captions, got 34"):
        source(split, batch_size=34)


@pytest.mark.parametrize("image", [PLAIN, CROPS])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_unreadable_image_is_one_line_from_any_process(image: ImageConfig, num_workers: int, tmp_path: Path) -> None:
    root = write_dataset(tmp_path)
    split = open_dataset(KarpathyConfig(name="tiny", root=str(root), image=image)).splits["train"]
    (root / "pictures" / "0003.png").unlink()
    broken = source(split, image, num_workers=num_workers)
    with pytest.raises(DataError, match=r"^[^\n]*0003\.png[^\n]*$"):
        list(broken.batches(1))
    broken.close()
