import pytest

from goal_sweep.analysis.results import SweepResults
from tests.helpers.results_cases import SweepWriter, recalls


@pytest.fixture(scope="session")
def complete() -> SweepResults:
    """15 objectives x 3 seeds x 2 stages, all done."""
    sweep = SweepWriter("complete", stages=["frozen", "finetune"])
    sweep.write_all()
    sweep.write_all(stage="finetune")
    return sweep.results()


@pytest.fixture(scope="session")
def broken() -> SweepResults:
    """One of everything that can be missing; what is right is the complete sweep's frozen stage."""
    sweep = SweepWriter("broken", stages=["frozen", "finetune"])
    sweep.write_all(skip=[("con/nca", 2), *(("lin/con", seed) for seed in (1, 2, 3)), ("sig/con", 3), ("sig/nca", 1)])
    for seed in (1, 2, 3):
        sweep.write("lin/con", seed, status="failed", reason="NaN at epoch 2 | step 17")
    sweep.write("sig/con", 3, metrics=recalls("sig/con", 3) | {"test/i2t_r1": float("nan")})
    sweep.write("sig/nca", 1, status="running", metrics=recalls("sig/nca", 1))
    return sweep.results()
