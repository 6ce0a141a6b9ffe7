from __future__ import annotations

import pytest

from goal_sweep.analysis.blocks import BlockKey
from goal_sweep.analysis.figures.colours import (
    BLUE,
    CIVIDIS,
    GREEN,
    RED,
    assign_colours,
    colour_scale,
    text_colour,
)


def key(
    dataset: str = "coco", framework: str = "vsepp", backbone: str = "resnet152", stage: str = "frozen"
) -> BlockKey:
    return BlockKey(
        dataset=dataset, framework=framework, backbone=backbone, stage=stage, variant="paper", data_fingerprint=""
    )


def test_linear_from_white_to_full() -> None:
    scale = colour_scale(30.0, 40.0, GREEN)
    assert (scale(30.0), scale(40.0), scale(20.0), scale(50.0)) == ("FFFFFF", GREEN, "FFFFFF", GREEN)
    middle = [int(scale(35.0)[place : place + 2], 16) for place in (0, 2, 4)]
    assert middle == pytest.approx([0xAB, 0xDD, 0xC4], abs=1)
    assert colour_scale(5.0, 5.0, RED)(5.0) == "FFFFFF"


def test_models_take_turns_and_their_stages_share_a_colour() -> None:
    mine, mine_too, other = key("emoji"), key("emoji", stage="finetune"), key("emoji", backbone="tiny")
    assert list(assign_colours([key(), mine, mine_too, other]).values()) == [GREEN, BLUE, BLUE, RED]


def test_both_scales_run_from_pale_to_full_and_keep_their_numbers_readable() -> None:
    for full in (GREEN, CIVIDIS):
        scale = colour_scale(0.0, 1.0, full)
        inks = [text_colour(scale(value / 20)) for value in range(21)]
        assert inks[0] == "000000"
        brightness = [sum(bytes.fromhex(scale(value / 20))) for value in range(21)]
        assert brightness == sorted(brightness, reverse=True)
