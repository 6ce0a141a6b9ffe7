from pathlib import Path

import numpy as np
import pytest
import torch

from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.goal_core.evaluation.retrieval import EmbeddingError, nearest_items, retrieval_metrics, retrieval_ranks
from tests.helpers.properties import given, settings, st
from tests.helpers.retrieval_oracle import oracle_metrics, oracle_ranks

IMAGES = torch.eye(4)
OWNERS = torch.tensor([0, 1, 2, 3])


def unit(shape: tuple[int, int], seed: int = 0) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(shape, generator=torch.Generator().manual_seed(seed)), dim=1)


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Small integers, so that similarities are exact and ties are common; uneven captions in any order."""
    num_images, dims = draw(st.integers(1, 9)), draw(st.integers(1, 3))
    owners = list(range(num_images)) + draw(st.lists(st.integers(0, num_images - 1), max_size=20))
    owners = draw(st.permutations(owners))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    reach = draw(st.integers(1, 3))
    images = rng.integers(-reach, reach + 1, (num_images, dims)).astype(np.float32)
    texts = rng.integers(-reach, reach + 1, (len(owners), dims)).astype(np.float32)
    return images, texts, np.asarray(owners, dtype=np.int64)


def test_ranks_are_saved_by_image_and_give_the_same_recalls(tmp_path: Path) -> None:
    owners = torch.tensor([2, 0, 1, 0, 2, 2])
    ranks = retrieval_ranks(torch.eye(3), torch.eye(3)[owners] + 0.6 * torch.eye(3)[[0, 1, 2, 2, 1, 0]], owners)
    ranks.save(tmp_path / "ranks.npz", owners)
    saved = np.load(tmp_path / "ranks.npz", allow_pickle=False)
    assert saved["captions"].tolist() == [2, 1, 3]
    assert saved["i2t"].tolist() == ranks.i2t.tolist()
    assert saved["t2i"].tolist() == ranks.t2i[[1, 3, 2, 0, 4, 5]].tolist()


@settings(max_examples=60, deadline=None)
@given(case=cases(), block_images=st.integers(1, 10))
def test_equals_full_sort_with_ties_and_uneven_captions(
    case: tuple[np.ndarray, np.ndarray, np.ndarray], block_images: int
) -> None:
    images, texts, owners = case
    sims = images @ texts.T
    ranks = retrieval_ranks(torch.tensor(images), torch.tensor(texts), owners, block_images=block_images)
    i2t, t2i = oracle_ranks(sims, owners)
    np.testing.assert_array_equal(ranks.i2t.numpy(), i2t)
    np.testing.assert_array_equal(ranks.t2i.numpy(), t2i)
    got = retrieval_metrics(torch.tensor(images), torch.tensor(texts), owners, block_images=block_images)
    assert got == pytest.approx(oracle_metrics(sims, owners), abs=1e-9)


def test_hand_checked_example() -> None:
    # Image 0 has captions 0 and 1, image 1 has caption 2. Similarities: image 0 [2, 0, 1], image 1 [0, 3, 3].
    images, texts = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[2.0, 0.0], [0.0, 3.0], [1.0, 3.0]])
    ranks = retrieval_ranks(images, texts, torch.tensor([0, 0, 1]))
    assert ranks.i2t.tolist() == [0, 1]  # image 1's own caption ties with caption 1, which is wrong
    assert ranks.t2i.tolist() == [0, 1, 0]
    metrics = retrieval_metrics(images, texts, torch.tensor([0, 0, 1]))
    assert metrics["i2t_r1"] == 50.0
    assert metrics["t2i_r1"] == pytest.approx(200 / 3)
    assert metrics["i2t_r5"] == metrics["t2i_r10"] == 100.0


@pytest.mark.parametrize(("num_images", "block_images"), [(12, 1), (67, 50), (130, 50), (130, 1024)])
@pytest.mark.parametrize("dims", [3, 37, 256])
def test_collapsed_embeddings_score_zero(num_images: int, dims: int, block_images: int) -> None:
    image, text = unit((1, dims), 1), unit((1, dims), 2)
    owners = torch.arange(num_images).repeat_interleave(5)[:-3]
    metrics = retrieval_metrics(
        image.expand(num_images, -1), text.expand(owners.numel(), -1), owners, block_images=block_images
    )
    assert set(metrics.values()) == {0.0}


def test_folds_are_the_mean_of_their_parts_for_captions_in_any_order() -> None:
    images, owners = unit((40, 8)), torch.arange(40).repeat_interleave(5)
    texts = images[owners] + 0.8 * unit((200, 8), 3)
    order = torch.randperm(200, generator=torch.Generator().manual_seed(4))
    got = retrieval_metrics(images, texts[order], owners[order], folds=4)
    parts = [retrieval_metrics(images[i : i + 10], texts[5 * i : 5 * i + 50], owners[:50]) for i in range(0, 40, 10)]
    assert got == pytest.approx({k: np.mean([p[k] for p in parts]) for k in parts[0]})
    assert got["rsum"] > retrieval_metrics(images, texts, owners)["rsum"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_computes_in_fp32_whatever_the_input_type(dtype: torch.dtype) -> None:
    images, texts = unit((50, 16)).to(dtype), unit((50, 16), 1).to(dtype)
    assert retrieval_metrics(images, texts, torch.arange(50)) == retrieval_metrics(
        images.float(), texts.float(), torch.arange(50)
    )


def test_autocast_and_precision_settings_are_shut_out_and_restored() -> None:
    images, texts, owners = unit((80, 64)), unit((80, 64), 1), torch.arange(80)
    expected = retrieval_ranks(images, texts, owners)
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", torch.bfloat16):
            got = retrieval_ranks(images, texts, owners)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert got.i2t.tolist() == expected.i2t.tolist()
    assert got.t2i.tolist() == expected.t2i.tolist()


def with_value(value: float) -> torch.Tensor:
    bad = torch.eye(4)
    bad[2, 1] = value
    return bad


@pytest.mark.parametrize(
    ("images", "texts", "owners", "message"),
    [
        (with_value(float("nan")), IMAGES, OWNERS, r"images are not finite in 1 of 4 rows, the first is 2"),
        (IMAGES, with_value(float("inf")), OWNERS, r"texts are not finite in 1 of 4 rows, the first is 2"),
        (1e300 * IMAGES.double(), IMAGES, OWNERS, r"images are not finite"),
        (with_value(1e30), with_value(1e30), OWNERS, r"similarities overflow fp32"),
        (IMAGES[0], IMAGES, OWNERS, r"images must be a non-empty matrix .* got shape \(4,\)"),
        (IMAGES, IMAGES[:0], OWNERS, r"texts must be a non-empty matrix .* got shape \(0, 4\)"),
        (IMAGES.long(), IMAGES, OWNERS, r"images must be floating point, got torch.int64"),
        (IMAGES, torch.ones(4, 5), OWNERS, r"images have 4 dimensions but texts have 5"),
        (IMAGES, IMAGES, OWNERS[:3], r"owners must have shape \(4,\), one per text, got \(3,\)"),
        (IMAGES, IMAGES, OWNERS.float(), r"owners must be integers, got torch.float32"),
        (IMAGES, IMAGES, OWNERS + 1, r"owners must lie in 0..3, got values from 1 to 4"),
        (IMAGES, IMAGES, OWNERS - 1, r"owners must lie in 0..3, got values from -1 to 2"),
        (IMAGES, IMAGES, torch.tensor([0, 1, 3, 3]), r"1 of 4 images have no caption, the first is 2"),
    ],
)
def test_what_cannot_be_ranked_is_an_error_of_one_line(
    images: torch.Tensor, texts: torch.Tensor, owners: torch.Tensor, message: str
) -> None:
    with pytest.raises(EmbeddingError, match=message) as error:
        retrieval_metrics(images, texts, owners)
    assert isinstance(error.value, GoalError)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("folds", [0, -1, 3, 5])
def test_images_must_divide_into_folds(folds: int) -> None:
    with pytest.raises(EmbeddingError, match=rf"4 images do not divide into folds={folds} equal folds"):
        retrieval_metrics(IMAGES, IMAGES, OWNERS, folds=folds)


@pytest.mark.parametrize("block", [1, 3, 99])
def test_the_nearest_right_and_wrong_items_are_those_of_the_whole_matrix(block: int) -> None:
    images, texts, owners = unit((7, 5)), unit((20, 5)), torch.arange(20) % 7
    sims, is_right = images @ texts.T, owners == torch.arange(7)[:, None]
    right, wrong = nearest_items(images, texts, torch.arange(7), owners, block=block)
    assert right.tolist() == sims.where(is_right, -2.0).argmax(1).tolist()
    assert wrong.tolist() == sims.where(~is_right, -2.0).argmax(1).tolist()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_device_changes_no_rank() -> None:
    images, owners = torch.randint(-2, 3, (500, 24)).float(), torch.arange(500).repeat_interleave(5)
    texts = torch.randint(-2, 3, (2500, 24)).float()
    here, there = retrieval_ranks(images, texts, owners), retrieval_ranks(images.cuda(), texts.cuda(), owners)
    assert there.i2t.is_cuda
    assert there.i2t.tolist() == here.i2t.tolist()
    assert there.t2i.tolist() == here.t2i.tolist()
    line = unit((1, 24)).cuda()
    assert retrieval_metrics(line.expand(500, -1), line.expand(2500, -1), owners)["rsum"] == 0.0
