"""`SWEEP+smoke`: every sweep that ships becomes two cells of drawn pictures on one CPU."""

from collections.abc import Callable
from pathlib import Path

import pytest

from goal_sweep.sweeps import SweepError, list_shipped, load_sweep

Write = Callable[..., Path]


@pytest.mark.parametrize("name", list_shipped())
def test_every_shipped_sweep_becomes_small(name: str) -> None:
    own, small = load_sweep(name, environ={"GOAL_DATA": "/data", "GOAL_WEIGHTS": "/w"}), load_sweep(f"{name}+smoke")
    assert small.name == f"{name}-smoke"
    assert (len(small.objectives.names), small.axes, small.tune) == (2, (), None)
    assert set(small.objectives.names) <= set(own.objectives.names)
    assert (small.data.format, small.resources.gpus, small.precision) == ("scenes", 0, "fp32")
    assert {backbone.weights for backbone in small.model.backbones} == {"random"}
    assert [(one.name, one.lr, one.optimizer) for one in small.stages] == [
        (one.name, one.lr, one.optimizer) for one in own.stages
    ]
    assert {(one.epochs, one.batch_size) for one in small.stages} == {(1, 16)}


def test_what_is_set_wins_over_it(write: Write, small_text: str) -> None:
    write("a.yaml", small_text + "objectives: {only: [sig/nca]}\n")
    small = load_sweep("a.yaml+smoke", ["stages.frozen.epochs=2"])
    assert (len(small.objectives.names), small.stages[0].epochs) == (1, 2)


def test_towers_that_cannot_be_made_up_are_named(write: Write, small_text: str) -> None:
    write("a.yaml", small_text.replace("model:\n", "model:\n  framework: dual\n"))
    with pytest.raises(SweepError) as caught:
        load_sweep("a.yaml+smoke")
    assert "model.framework" in str(caught.value.problems[0])
    assert "got dual" in str(caught.value.problems[0])
