"""The model card names the model that is best on val, and the mean and spread of its seeds."""

import pytest

from goal_sweep.analysis.report.pages import model_card
from goal_sweep.sweeps.results import ResultsError
from tests.helpers.results_cases import FINGERPRINT, SweepWriter, recalls


def test_the_best_on_val_is_described_whatever_its_test() -> None:
    writer = SweepWriter(seeds=(1, 2), objectives=("con/con", "sig/cir"))
    vals = {"con/con": (300.0, 310.0), "sig/cir": (304.0, 308.0)}  # means 305 and 306; sig/cir is made worse on test
    for objective, values in vals.items():
        for seed, val in zip(writer.seeds, values, strict=True):
            metrics = recalls(objective, seed, 5 if objective == "con/con" else 0) | {"val/rsum": val}
            settings = {"objective.tau": "10.0", "stages.frozen.select_on": "val"}
            writer.write(objective, seed, metrics=metrics, settings=settings, checkpoint=f"cells/{seed}/best-2")
    card = model_card(writer.results())
    assert card.startswith("# sig/cir: MS-COCO")
    assert f"| data | coco, fingerprint {FINGERPRINT} |" in card
    assert "| objective.tau | 10.0 |" in card
    assert "| weights | cells/2/best-2 (seed 2, epoch 2) |" in card
    of_val, of_test = (
        next(line for line in card.splitlines() if line.startswith(f"| {split}")) for split in ("val", "test")
    )
    assert of_val.endswith("| 306.0 ± 2.8 |")
    assert "± 0.2" in of_test
    assert "goal_sweep.load('cells/2/best-2')" in card
    assert "selected on the test split" not in card


def test_a_selection_on_test_is_said_and_nothing_done_is_an_error() -> None:
    writer = SweepWriter(seeds=(1,), objectives=("con/con",))
    with pytest.raises(ResultsError, match="is finished"):
        model_card(writer.results())
    metrics = recalls("con/con", 1) | {"val/rsum": 300.0}
    writer.write("con/con", 1, metrics=metrics, settings={"stages.frozen.select_on": "test"})
    assert "selected on the test split" in model_card(writer.results())
