"""`feature_views`: features of a few augmented views of each image, computed once."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.goal_core.checkpoints.initial_model import InitialModel
from goal_sweep.goal_core.data.batches import BatchSource, epoch_order, sample_seed, view_seed
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.data.transforms import transform_of
from goal_sweep.goal_core.training import StageConfig
from goal_sweep.goal_core.training.shared_backbone import SharedBackbone
from goal_sweep.goal_core.training.train import train_unit
from tests.helpers.training_cases import DATA, FROZEN, folders_of, same_weights, train_killed, unit_of

CROPS = replace(DATA, image=replace(DATA.image, augment="crop_flip"))
VIEWS = replace(FROZEN, feature_views=3)


def test_each_pair_gets_the_features_of_a_view_of_its_image(tmp_path: Path) -> None:
    unit = unit_of("con/con", data=CROPS, stage=VIEWS, cache=tmp_path)
    dataset = open_dataset(CROPS)
    train, initial = dataset.splits["train"], InitialModel(unit.model, unit.data, dataset)
    shared = SharedBackbone(unit, initial, dataset.fingerprint, steps=1, alive=lambda: None)
    assert not shared.wants_pixels()
    shared.prepare(train)
    source = BatchSource(train, initial.tokenizer, unit.data.image, batch_size=16, seed=1, with_images=False, views=3)
    seen = set()
    for epoch in (1, 2):
        batch = next(source.batches(epoch))
        inputs = shared.load(batch).inputs
        for row in (0, 7, 15):
            image, caption = int(batch.image_index[row]), int(epoch_order(train.num_captions, 1, epoch)[row])
            view = sample_seed(1, epoch, caption) % 3
            pixels = transform_of(CROPS.image).for_training(train.load_image(image), view_seed(1, image, view))
            assert shared.backbone is not None
            with torch.no_grad():
                expected = shared.backbone(pixels[None])[0]
            assert torch.allclose(inputs[row], expected, atol=1e-5)
            seen.add(view)
    assert len(seen) > 1


def test_cells_alone_together_killed_and_from_the_cache_have_the_same_numbers(tmp_path: Path) -> None:
    together = unit_of("con/con", "sig/nca", data=CROPS, stage=VIEWS, cache=tmp_path / "features")
    alone = unit_of("sig/nca", data=CROPS, stage=VIEWS)
    first, second, third = (folders_of(together, tmp_path / name) for name in ("first", "second", "third"))
    train_unit(together, first)
    assert "3 augmented views of each training image, computed once" in (first["con-con"].root / "log.txt").read_text()
    train_killed(together, second, 3, 7)
    train_unit(alone, third)
    for other in (second, third):
        assert first["sig-nca"].numbers() == other["sig-nca"].numbers()
        assert same_weights(first["sig-nca"], other["sig-nca"])


def test_views_belong_to_a_seed_and_a_number_of_views(tmp_path: Path) -> None:
    names = set()
    for seed, views in ((1, 3), (2, 3), (1, 4)):
        unit = unit_of("con/con", data=CROPS, stage=replace(VIEWS, feature_views=views), seed=seed, cache=tmp_path)
        unit = replace(unit, stage=replace(unit.stage, epochs=2, lr_drops=()))
        train_unit(unit, folders_of(unit, tmp_path / f"{seed}-{views}"))
        names |= {path.name for path in tmp_path.glob("train-*.safetensors")}
    assert len(names) == 3


def test_what_has_no_views_is_refused() -> None:
    with pytest.raises(ConfigError, match="feature_views needs stage frozen"):
        StageConfig(name="finetune", epochs=1, lr=0.1, feature_views=2)
    with pytest.raises(ConfigError, match="feature_views must be at least 0"):
        StageConfig(name="frozen", epochs=1, lr=0.1, feature_views=-1)
