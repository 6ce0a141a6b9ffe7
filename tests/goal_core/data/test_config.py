from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.goal_core.data import DataConfig, ImageConfig
from goal_sweep.goal_core.data.config import (
    EmbeddingsConfig,
    IdMappedConfig,
    KarpathyConfig,
    PrecompConfig,
    RegionsConfig,
    ScenesConfig,
    SourceConfig,
    XvlmJsonConfig,
)

FILES: dict[str, Any] = {"train_files": ("a.json",), "val_file": "b.json", "test_file": "c.json"}
CONFIGS: tuple[DataConfig, ...] = (
    KarpathyConfig(name="x", root="y"),
    IdMappedConfig(name="x", root="y"),
    XvlmJsonConfig(name="x", root="y", **FILES),
    RegionsConfig(name="x", root="y"),
    PrecompConfig(name="x", root="y"),
    ScenesConfig(),
    SourceConfig(name="x", root="y"),
    EmbeddingsConfig(name="x", root="y"),
)


def test_numbers_of_karpathys_settings_out_of_range_are_refused() -> None:
    wrong: list[dict[str, Any]] = [{"max_captions": -1}, {"max_val_images": -1}, {"min_word_count": 0}]
    for settings in wrong:
        with pytest.raises(ConfigError, match=next(iter(settings))):
            KarpathyConfig(name="x", root="y", **settings)


@pytest.mark.parametrize("kind", [RegionsConfig, IdMappedConfig])
@pytest.mark.parametrize("settings", [{"min_word_count": 0}, {"max_val_images": -1}])
def test_numbers_of_vse_infinitys_settings_out_of_range_are_refused(kind: Any, settings: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        kind(name="x", root="y", **settings)


def test_empty_splits_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_val must be at least 1"):
        ScenesConfig(num_val=0)


@pytest.mark.parametrize(("size", "resize", "message"), [(4, 32, "at least 8"), (64, 32, "resize=32 < size=64")])
def test_sizes_that_do_not_fit_are_refused(size: int, resize: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ImageConfig(size=size, resize=resize)


@pytest.mark.parametrize("config", CONFIGS)
def test_every_dataset_says_whether_it_has_images_and_files(config: DataConfig) -> None:
    assert (config.image is None) == (config.format in ("precomp", "regions", "embeddings"))
    assert (config.root is None) == (config.format == "scenes")
    if config.root is not None:
        moved = replace(config, root="z")
        assert (type(moved), moved.root) == (type(config), "z")
        assert {**asdict(moved), "root": "y"} == asdict(config)
    if config.image is None:
        assert "image" not in asdict(config)  # ids and checkpoints hold the fields alone
