"""The differences from con/con as the page draws them."""

from goal_sweep.analysis.report.answer import Forest
from goal_sweep.analysis.statistics.aggregation import aggregate
from goal_sweep.goal_core.evaluation.metrics import METRICS
from goal_sweep.sweeps.results import BASELINE
from tests.helpers.results_cases import NAMES, SweepWriter, recalls


def forests(shift: float) -> list[Forest]:
    """Both directions of a block in which lin/cir lies so far away."""
    writer = SweepWriter()
    for name in NAMES:
        for seed in writer.seeds:
            metrics = recalls(name, seed, shift if name == "lin/cir" else 0.02 * seed * NAMES.index(name) % 0.3)
            writer.write(name, seed, metrics=metrics)
    (block,) = aggregate(writer.results())
    found = [Forest.of(block, block.grids[key]) for key in ("i2t_r1", "t2i_r1")]
    return [own for own in found if own is not None]


def test_one_objective_far_out_does_not_flatten_the_others() -> None:
    near, far = forests(0.0)[0], forests(-40.0)[0]
    assert (near.is_cut, far.is_cut) == (False, True)
    assert far.limits[0] > -20
    assert near.limits[0] < 0 < near.limits[1]


def test_each_objective_has_a_row_and_con_con_none() -> None:
    one = forests(0.0)[0]
    assert len(one.differences) == 15
    assert one.differences[BASELINE] is None
    writer = SweepWriter(objectives=["sig/con", "sig/nca"])
    writer.write_all()
    (block,) = aggregate(writer.results())
    assert all(Forest.of(block, block.grids[key]) is None for key in METRICS)
