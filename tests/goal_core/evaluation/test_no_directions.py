"""Embeddings without a direction are an error wherever they come from, and equal ones a collapse."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from goal_sweep.goal_core.basics.errors import CollapsedError, listening
from goal_sweep.goal_core.evaluation.recalls import check_embedded
from goal_sweep.goal_core.evaluation.retrieval import EmbeddingError, NonFiniteEmbeddingError, recall
from goal_sweep.goal_core.objectives.gradient_objective import GradientObjective


def units(rows: int) -> Tensor:
    return torch.nn.functional.normalize(torch.randn(rows, 8, generator=torch.Generator().manual_seed(rows)), dim=1)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (torch.zeros(8), "1 of 5 images are not of unit length .one is 0 long"),
        (torch.full((8,), 1e-30), "one is 0 long"),
        (torch.full((8,), 1e25), "one is inf long"),
        (torch.full((8,), 3.0), "one is 8.49 long"),
        (torch.tensor([float("nan")] * 8), "NaN or infinity in the embeddings of 1 of 5 images"),
    ],
)
def test_what_is_no_unit_vector_is_counted(row: Tensor, said: str) -> None:
    images, texts = units(5), units(6)
    assert check_embedded((images, texts), "val")[0] is images
    images[3] = row
    with pytest.raises(NonFiniteEmbeddingError, match=f"val: .*{said}"):
        check_embedded((images, texts), "val")


def test_half_precision_rounds_within_the_tolerance() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        rows = units(500).to(dtype).float()
        check_embedded((rows, rows[:7]), "val")


def test_equal_embeddings_are_a_collapse() -> None:
    with pytest.raises(CollapsedError, match="val: the embeddings of all 5 images are equal"):
        check_embedded((units(5)[:1].expand(5, 8), units(6)), "val")
    lines: list[str] = []
    with listening(lines.append):
        check_embedded((units(5), units(6)[:1].expand(6, 8)), "val")
    assert [line.partition(":")[0] for line in lines] == ["val"]


def test_statistics_tell_of_embeddings_without_a_direction() -> None:
    images, texts = units(5), units(5).flip(0)
    objective = GradientObjective(pair="con", triplet="nca", check_finite=False)
    assert objective.forward_with_stats(images, texts)[1].sound
    texts[2] = 0
    assert not objective.forward_with_stats(images, texts)[1].sound


@pytest.mark.parametrize("repeats", [2, 5, 3])
@pytest.mark.parametrize("noise", [0.0, 1e-7])
def test_images_that_stand_there_for_each_of_their_texts_are_taken_once(repeats: int, noise: float) -> None:
    images = units(20)
    texts = torch.nn.functional.normalize(images.repeat_interleave(repeats, 0) + 0.3 * units(20 * repeats), dim=1)
    repeated = images.repeat_interleave(repeats, 0) + noise * torch.randn(20 * repeats, 8)
    with pytest.warns(UserWarning, match=f"stands {repeats} times in a row"):
        found = recall(repeated, texts)
    assert found == pytest.approx(recall(images, texts), abs=0.01)
    owners = np.arange(20, dtype=np.uint64).repeat(repeats)
    frame: Any = pytest.importorskip("pandas").DataFrame(images)
    assert recall(frame, texts, owners) == recall(images, texts)
    with pytest.raises(EmbeddingError, match=f"every {repeats} images in a row are all but equal"):
        recall(repeated + 1e-3 * torch.randn(20 * repeats, 8), texts)


@pytest.mark.parametrize("repeats", [[2] * 10 + [4] * 10, [60], [2] + [3] * 19])
def test_images_that_repeat_in_another_way_are_refused(repeats: list[int]) -> None:
    repeated = units(len(repeats)).repeat_interleave(torch.tensor(repeats), 0)
    with pytest.raises(EmbeddingError, match="equal to another one; give each image once"):
        recall(repeated, units(len(repeated)))


@pytest.mark.parametrize(
    ("row", "said"),
    [([torch.inf, *7 * [0.1]], "not finite in 1 of 20"), (8 * [1e-30], "1 of 20 .* length 0"), ([], "point, got")],
)
def test_rows_of_no_use_are_refused(row: list[float], said: str) -> None:
    images = units(20).index_put((torch.tensor(7),), torch.tensor(row)) if row else units(20).view(torch.int32)
    with pytest.raises(EmbeddingError, match=said):
        recall(images, units(20))
    with pytest.raises(EmbeddingError, match="a mask would be lost"):
        recall(np.ma.masked_array(units(20).numpy(), mask=False), units(20))


REPEATS = {
    "tiled": torch.arange(20).repeat(5),
    "shuffled": torch.arange(20).repeat(5)[torch.randperm(100, generator=torch.Generator().manual_seed(1))],
    "neighbours": torch.arange(20).repeat_interleave(5),
}


@pytest.mark.parametrize("noise", [0.0, 1e-7])
@pytest.mark.parametrize("how", REPEATS)
def test_repeated_images_are_noticed_wherever_they_stand(how: str, noise: float) -> None:
    repeated, texts = units(20)[REPEATS[how]] + noise * torch.randn(100, 8), units(100)
    with pytest.warns(UserWarning, match="80 of 100 images are .*equal .* find it before .* once, .*--owners"):
        assert recall(repeated, texts, torch.arange(100))["t2i_r1"] <= 1 or noise
    if how != "neighbours" and not noise:
        with pytest.raises(EmbeddingError, match=r"80 of 100 .* give each image once, and the owners .*--owners"):
            recall(repeated, texts)


@pytest.mark.parametrize("difference", [1e-6, 3e-7, 1e-7])
def test_images_that_differ_a_little_are_no_repeats(difference: float) -> None:
    images = units(1) + difference * torch.randn(20, 8)
    with pytest.warns(UserWarning, match="19 of 20 images are all but equal to another one"):
        assert recall(images, units(40))


def test_two_neighbours_that_are_equal_are_said() -> None:
    images = units(20)
    images[3] *= 1e8  # which makes no others equal
    with pytest.warns(UserWarning, match="1 of 21 images are equal to another one"), pytest.warns(match="unit"):
        recall(torch.cat((images, images[-1:])), units(42))
