from typing import Any

import pytest

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.goal_core.data import ImageConfig
from goal_sweep.goal_core.data.config import IdMappedConfig, KarpathyConfig, RegionsConfig, ScenesConfig


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        *((kind, {"min_word_count": 0}, "min_word_count") for kind in (KarpathyConfig, RegionsConfig, IdMappedConfig)),
        *((kind, {"max_val_images": -1}, "max_val_images") for kind in (KarpathyConfig, RegionsConfig, IdMappedConfig)),
        (KarpathyConfig, {"max_captions": -1}, "max_captions"),
        (ScenesConfig, {"num_val": 0}, "num_val must be at least 1"),
        (ImageConfig, {"size": 4, "resize": 32}, "at least 8"),
        (ImageConfig, {"size": 64, "resize": 32}, "resize=32 < size=64"),
    ],
)
def test_numbers_out_of_range_are_refused(kind: Any, settings: dict[str, int], message: str) -> None:
    places = {} if kind in (ScenesConfig, ImageConfig) else {"name": "x", "root": "y"}
    with pytest.raises(ConfigError, match=message):
        kind(**places, **settings)
