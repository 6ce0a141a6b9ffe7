"""Results tables, one and several: the union of stores, and where they contradict each other."""

from pathlib import Path
from typing import Any

import pytest

from goal_sweep.analysis.results import SweepResults, best_runs, united
from goal_sweep.analysis.statistics.aggregation import aggregate, missing_counts
from goal_sweep.goal_core.evaluation.metrics import RSUM
from goal_sweep.sweeps.axes import Axis
from goal_sweep.sweeps.results import ResultsError
from tests.helpers.results_cases import SweepWriter, of_epochs, recalls

TWO = ("con/con", "sig/cir")


def store(name: str, seeds: tuple[int, ...], skip: tuple[tuple[str, int], ...] = (), **options: Any) -> SweepResults:
    writer = SweepWriter("shared", seeds=seeds, objectives=TWO)
    writer.write_all(skip=skip, checkpoint="cells/c/best", **options)
    return writer.results(Path("/stores") / name)


def test_the_union_of_stores_has_every_finished_training_once() -> None:
    first = store("a", (1, 2), skip=(("sig/cir", 2),))  # it waits there
    second = store("b", (2, 3), epochs=of_epochs(3, train__loss=0.5))
    both = united([first, second])
    assert (both.header.seeds, len(both.counted), both.counted["training"].is_unique) == ((1, 2, 3), 6, True)
    (block,) = aggregate(both)
    assert [cell.n for cell in block.cells.values() if cell.requested] == [3, 3]
    assert missing_counts(both, [block]).total() == 0
    where = both.counted.set_index(["pair", "seed"])["store"].map(lambda path: Path(path).name).to_dict()
    assert (where["con", 2], where["sig", 2], where["sig", 3]) == ("a", "b", "b")
    epochs = both.epochs(both.counted, ["val/rsum", "train/loss"])
    assert epochs.groupby("training")["epoch"].max().value_counts().to_dict() == {2: 3, 3: 3}


def test_another_number_of_the_same_training_is_an_error() -> None:
    other = SweepWriter("shared", seeds=(1,), objectives=TWO)
    other.write("con/con", 1, metrics=recalls("con/con", 1, 0.5))
    other.write("sig/cir", 1)
    with pytest.raises(
        ResultsError, match=r"con/con resnet152 seed 1 \(frozen\) differs between /stores/a and /b: test/"
    ):
        united([store("a", (1,)), other.results(Path("/b"))])


def test_trainings_of_one_cell_with_other_settings_are_an_error() -> None:
    one, two = (SweepWriter("shared", seeds=(1,), objectives=("con/con",)) for _ in range(2))
    for writer, lr in ((one, "0.1"), (two, "0.2")):
        writer.write(settings={"stages.frozen.lr": lr}, training=f"key-{lr}")
    with pytest.raises(ResultsError, match=r"differs between /a and /b: setting/stages\.frozen\.lr is 0\.1 and 0\.2"):
        united([one.results(Path("/a")), two.results(Path("/b"))])


def test_stores_of_sweeps_with_other_axes_are_an_error() -> None:
    axes = (Axis(key="objectives.params.tau", values=(10, 1)),)
    other = SweepWriter("shared", seeds=(1,), objectives=TWO, axes=axes, points={"frozen": ["tau 10", "tau 1"]})
    other.write("con/con", 1, configuration="tau *")
    with pytest.raises(ResultsError, match="different sweeps named shared"):
        united([store("a", (1,)), other.results()])


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
