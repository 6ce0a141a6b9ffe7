from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from goal_sweep.goal_core.basics.errors import ConfigError, DataError, listening
from goal_sweep.goal_core.data.config import PrecompConfig
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.evaluation.evaluate import check_same_queries, evaluate_ensemble, open_checkpoint
from goal_sweep.goal_core.evaluation.recalls import embed_split, recalls_between
from tests.helpers.retrieval_oracle import oracle_metrics
from tests.helpers.training_cases import DATA, VECTORS, trained_cell
from tests.helpers.vector_files import vectors, write_vectors


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("ensemble")
    return [trained_cell(root, 1), trained_cell(root, 2)]


def test_the_ensemble_ranks_by_the_mean_of_both_similarity_matrices(two: list[Path]) -> None:
    result = evaluate_ensemble(map(open_checkpoint, two))
    sims = []
    for path in two:
        opened = open_checkpoint(path)
        images, texts = embed_split(opened.encoder, opened.prepared("test"))
        sims.append(images.double().numpy() @ texts.double().numpy().T)
    owners = open_dataset(DATA).splits["test"].caption_image
    expected = oracle_metrics((sims[0] + sims[1]) / 2, owners)
    assert result["metrics"] == {f"test/{key}": pytest.approx(value) for key, value in expected.items()}
    assert result["metrics"] != result["members"][0]["metrics"]
    assert result["members"] == [open_checkpoint(path).evaluate() for path in two]
    assert (result["images"], result["captions"]) == (8, 40)


def test_five_thousand_images_are_also_ranked_in_folds_of_one_thousand() -> None:
    generator = torch.Generator().manual_seed(0)
    images = normalize(torch.randn(2000, 8, generator=generator), dim=1)
    texts = normalize(images.repeat_interleave(2, 0) + 0.5 * torch.randn(4000, 8, generator=generator), dim=1)
    owners = torch.arange(2000).repeat_interleave(2)
    taken, _ = recalls_between(images, texts, owners, "test")
    folds = [
        recalls_between(images[at : at + 1000], texts[2 * at : 2 * at + 2000], owners[: 2 * 1000], "test")[0]
        for at in (0, 1000)
    ]
    for key in ("i2t_r1", "t2i_r10", "rsum"):
        assert taken[f"test_1k/{key}"] == pytest.approx((folds[0][f"test/{key}"] + folds[1][f"test/{key}"]) / 2)
    assert taken["test_1k/rsum"] > taken["test/rsum"]
    assert not any(key.startswith("test_1k") for key in folds[0])  # 1,000 images are the 1K test themselves


def test_what_cannot_be_averaged_is_refused(two: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the same one is given twice"):
        evaluate_ensemble(map(open_checkpoint, [two[0], two[1], two[0] / ".." / two[0].name]))
    other = trained_cell(tmp_path, 1, replace(DATA, num_test=9))
    with pytest.raises(DataError, match="ranked on different data: 8 images with 40 captions, and 9 with 45"):
        evaluate_ensemble(map(open_checkpoint, [two[0], other]))


def test_captions_tell_images_apart_and_their_spelling_does_not_matter() -> None:
    split = open_dataset(DATA).splits["test"]
    shouted = replace(split, captions=[f" {caption.upper()}" for caption in split.captions])
    check_same_queries(Path("a"), split, Path("b"), shouted)
    changed = replace(split, captions=[*split.captions[:7], "something else", *split.captions[8:]])
    with pytest.raises(DataError, match=r"a and b are ranked on different data: caption 7 of split 'test' is"):
        check_same_queries(Path("a"), split, Path("b"), changed)


@pytest.mark.parametrize("again", [0, 1, 3])
def test_images_that_the_cell_was_trained_on_are_counted(tmp_path: Path, again: int) -> None:
    data = PrecompConfig(name="tiny", root=str(write_vectors(tmp_path / "data")), min_word_count=1)
    cell = trained_cell(tmp_path, 1, data, model=VECTORS)
    open_dataset(data, tmp_path / "indexes")
    rows = np.load((other := write_vectors(tmp_path / "other")) / "test_ims.npy")
    np.save(other / "test_ims.npy", np.concatenate((vectors("train")[:again], rows[again:])))
    with listening((lines := list[str]()).append):
        open_checkpoint(cell, data=replace(data, root=str(other)), splits=["test"])
        assert [f"{again} of 3 test images are training images" in line for line in lines] == [True] * bool(again)
        for kept in (tmp_path / "indexes").iterdir():
            kept.unlink()
        open_checkpoint(cell, data=replace(data, root=str(other)), splits=["test"])
    assert "how many of 3 test images are training images" in lines[-1]
