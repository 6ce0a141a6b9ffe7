"""What a results table says: which model is the best."""

import pytest

from goal_sweep.analysis.results import best_runs
from goal_sweep.goal_core.evaluation.metrics import RSUM
from goal_sweep.sweeps.results import ResultsError
from tests.helpers.results_cases import SweepWriter, recalls


def test_the_best_model_is_of_the_last_stage_and_of_the_objective_that_is_asked_for() -> None:
    writer = SweepWriter(seeds=(1, 2), objectives=("con/con", "sig/cir", "infonce/loss"), stages=("frozen", "finetune"))
    vals = {"con/con": (300.0, 310.0), "sig/cir": (304.0, 308.0), "infonce/loss": (100.0, 90.0)}
    for objective, values in vals.items():
        for seed, val in zip(writer.seeds, values, strict=True):
            for stage, more in (("frozen", 50.0), ("finetune", 0.0)):
                metrics = recalls("con/con", seed) | {"val/rsum": val + more}
                writer.write(objective, seed, stage=stage, metrics=metrics)
    results = writer.results()
    found = best_runs(results)[["pair", "stage", "seed"]].to_numpy().tolist()
    assert found == [["sig", "finetune", 2], ["sig", "finetune", 1]]
    assert best_runs(results, "con/con")[RSUM.val].tolist() == [310.0, 300.0]
    assert best_runs(results, "infonce")["seed"].tolist() == [1, 2]
    with pytest.raises(ResultsError, match="con/con, sig/cir, infonce"):
        best_runs(results, "con/cn")
