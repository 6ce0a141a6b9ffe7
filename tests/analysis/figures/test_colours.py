from __future__ import annotations

import pytest

from goal_sweep.analysis.blocks import BlockKey
from goal_sweep.analysis.figures.colours import BLUE, GREEN, RED, YELLOW, ColourScale, assign_colours, text_colour


def key(
    dataset: str = "coco", framework: str = "vsepp", backbone: str = "resnet152", stage: str = "frozen"
) -> BlockKey:
    return BlockKey(
        dataset=dataset, framework=framework, backbone=backbone, stage=stage, variant="paper", data_fingerprint=""
    )


def test_linear_from_white_to_full() -> None:
    scale = ColourScale(low=30.0, high=40.0, full=GREEN)
    assert scale.colour(30.0) == "FFFFFF"
    assert scale.colour(40.0) == GREEN
    assert scale.colour(35.0) == "ABDDC4"
    assert (scale.strength(20.0), scale.strength(50.0)) == (0.0, 1.0)


def test_equal_values_are_white() -> None:
    assert ColourScale(low=5.0, high=5.0, full=RED).colour(5.0) == "FFFFFF"


def test_models_take_turns_and_their_stages_share_a_colour() -> None:
    mine, mine_too, other = key("emoji"), key("emoji", stage="finetune"), key("emoji", backbone="tiny")
    assert list(assign_colours([key(), mine, mine_too, other]).values()) == [GREEN, BLUE, BLUE, RED]


@pytest.mark.parametrize("full", [GREEN, BLUE, RED, YELLOW])
def test_text_stands_out_on_every_shade(full: str) -> None:
    scale = ColourScale(low=0.0, high=1.0, full=full)
    assert {text_colour(scale.colour(v / 10)) for v in range(11)} == {"000000"}
    assert text_colour("202020") == "FFFFFF"
