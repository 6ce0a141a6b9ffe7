from typing import Any

import pytest

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.goal_core.data import ImageConfig
from goal_sweep.goal_core.data.config import IdMappedConfig, KarpathyConfig, RegionsConfig, ScenesConfig


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
