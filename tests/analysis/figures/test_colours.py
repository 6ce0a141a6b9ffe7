import pytest

from goal_sweep.analysis.blocks import BlockKey, CellSummary, Grid
from goal_sweep.analysis.figures.canvas import BLUE, GREEN, RED, ColourScale, assign_colours, scale_of
from goal_sweep.goal_core.evaluation.metrics import RSUM


def key(
    dataset: str = "coco", framework: str = "vsepp", backbone: str = "resnet152", stage: str = "frozen"
) -> BlockKey:
    return BlockKey(
        dataset=dataset, framework=framework, backbone=backbone, stage=stage, variant="paper", data_fingerprint=""
    )


def scale_between(low: float, high: float, full: str) -> ColourScale:
    cells = {("con", "con"): CellSummary.of([low]), ("con", "nca"): CellSummary.of([high])}
    scale = scale_of(Grid(metric=RSUM, cells=cells), full)
    assert scale is not None
    return scale


def test_linear_from_white_to_full() -> None:
    scale = scale_between(30.0, 40.0, GREEN)
    assert (scale(30.0), scale(40.0), scale(20.0), scale(50.0)) == ("FFFFFF", GREEN, "FFFFFF", GREEN)
    middle = [int(scale(35.0)[place : place + 2], 16) for place in (0, 2, 4)]
    assert middle == pytest.approx([0xAB, 0xDD, 0xC4], abs=1)
    assert scale_between(5.0, 5.0, RED)(5.0) == "FFFFFF"


def test_models_take_turns_and_their_stages_share_a_colour() -> None:
    mine, mine_too, other = key("emoji"), key("emoji", stage="finetune"), key("emoji", backbone="tiny")
    assert list(assign_colours([key(), mine, mine_too, other]).values()) == [GREEN, BLUE, BLUE, RED]
