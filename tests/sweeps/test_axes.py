from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.sweeps import ResolvedSweep, SweepConfig, Training, load_sweep, pack
from goal_sweep.sweeps.axes import Axis
from goal_sweep.sweeps.reading.document import SweepError
from goal_sweep.sweeps.schema import ExecutionConfig
from goal_sweep.sweeps.units import pack_chain

Write = Callable[..., Path]
TRUNK = ExecutionConfig(sharing="trunk")
ONE = ["seeds=[1]", "model.backbones=[{name: resnet10t, weights: random}]"]


@pytest.fixture
def sweep(write: Write) -> Callable[..., ResolvedSweep]:
    """A sweep of one backbone and one seed, both stages, with `--set`s."""
    path = write()

    def resolve(*overrides: str) -> ResolvedSweep:
        config = load_sweep(path, [*ONE, *overrides])
        return ResolvedSweep(config=config, data_fingerprint="f", weights={"resnet10t": "random"})

    return resolve


Sweep = Callable[..., ResolvedSweep]


def _of(trainings: list[Training], objective: str) -> list[Training]:
    return [one for one in trainings if one.cell.objective.name == objective]


def test_a_parameter_multiplies_the_objectives_that_have_it(sweep: Sweep) -> None:
    plain, axes = sweep(), sweep("objectives.params={tau: [10, 1, 5]}")
    assert len(axes.cells) == 5 + 10 * 3  # con has no tau
    assert len({cell.id for cell in axes.cells}) == len(axes.cells)
    # The default of tau is 10, so these are the cells that they always were.
    assert {cell.id for cell in plain.cells} <= {cell.id for cell in axes.cells}
    assert {one.key for one in plain.trainings} <= {one.key for one in axes.trainings}
    names = [one.name for one in _of(axes.by_stage[0], "sig-ms/cir")]
    assert names == [f"sig-ms/cir resnet10t seed 1 tau {tau} (frozen)" for tau in (10, 1, 5)]
    (con,) = _of(axes.by_stage[0], "sig/con")
    assert (con.name, con.configurations) == ("sig/con resnet10t seed 1 (frozen)", ("tau 10", "tau 1", "tau 5"))


def test_a_precision_multiplies_the_trainings_and_shares_no_unit(sweep: Sweep) -> None:
    plain, axes = sweep(), sweep("precision=[fp32,bf16]")
    frozen = _of(axes.by_stage[0], "con/con")
    assert [(one.precision, one.configuration) for one in frozen] == [
        ("fp32", "precision fp32"),
        ("bf16", "precision bf16"),
    ]
    assert {cell.id for cell in axes.cells} == {cell.id for cell in plain.cells}
    assert {one.key for one in plain.trainings} < {one.key for one in axes.trainings}
    assert len(axes.trainings) == 2 * len(plain.trainings)
    finetune = _of(axes.by_stage[1], "con/con")
    assert [one.before.precision for one in finetune if one.before] == ["fp32", "bf16"]
    units = pack(axes.by_stage[0], TRUNK)
    assert all(len({one.precision for one in unit.trainings}) == 1 for unit in units)


@pytest.mark.parametrize("values", ["fp32,tf32", "fp32,fp16", "fp32,[bf16]", "fp32,fp32"])
def test_precisions_that_cannot_be_compared_are_refused(sweep: Sweep, values: str) -> None:
    with pytest.raises(SweepError, match="precision"):
        sweep(f"precision=[{values}]")


def test_the_variant_multiplies_the_objectives_that_it_changes(sweep: Sweep) -> None:
    found = sweep("objectives.variant=[paper,released]").by_stage[0]
    assert len(found) == 30 - 3  # the variants agree on con/nca, lin/nca and sig/nca
    assert [one.configuration for one in _of(found, "sig/cir")] == ["variant paper", "variant released"]
    (same,) = _of(found, "sig/nca")
    assert (same.configuration, same.configurations) == ("", ("variant paper", "variant released"))
    both = sweep("objectives.variant=[paper,released]", "objectives.params={cir_shift: [0, .5]}").by_stage[0]
    # With the shift given, all that the variant changes of sig/cir is given.
    assert [one.configuration for one in _of(both, "sig/cir")] == ["cir_shift 0", "cir_shift 0.5"]


def test_a_setting_of_a_stage_multiplies_its_trainings_and_those_that_follow(sweep: Sweep) -> None:
    axes = sweep("stages.frozen.lr=[1e-3,5e-4]", "stages.finetune.lr=[1e-4,2e-4,3e-4]")
    frozen, finetune = axes.by_stage
    assert (len(axes.cells), len(frozen), len(finetune)) == (15, 30, 90)
    assert [one.configuration for one in frozen[::15]] == ["frozen.lr 0.001", "frozen.lr 0.0005"]
    assert len({one.configurations for one in frozen}) == 2
    for one in finetune:
        assert one.before is not None
        assert one.configuration == f"{one.before.configuration} finetune.lr {one.stage.lr:g}"
        assert one.before.cell is one.cell
    assert {one.before for one in finetune} == set(frozen)


def test_blocks_are_those_of_the_points_of_a_stage(sweep: Sweep) -> None:
    axes = sweep("objectives.params={tau: [10, 1]}", "stages.finetune.lr=[1e-4,2e-4]")
    frozen, finetune = ({one.configuration for training in stage for one in training.blocks} for stage in axes.by_stage)
    assert frozen == {"tau 10", "tau 1"}
    assert finetune == {f"tau {tau} lr {lr}" for tau in (10, 1) for lr in ("0.0001", "0.0002")}
    counts = [len([one for one in axes.by_stage[0] if point in one.configurations]) for point in ("tau 10", "tau 1")]
    assert counts == [15, 15]


def test_cells_of_all_points_share_a_unit(sweep: Sweep) -> None:
    axes = sweep("objectives.params={tau: [10, 1]}", "stages.frozen.lr=[1e-3,5e-4]", "stages.finetune.grad_clip=[1,2]")
    frozen, finetune = pack(axes.trainings, TRUNK)
    assert (len(frozen.trainings), len(finetune.trainings)) == (50, 100)
    assert frozen.label == "resnet10t seed 1 (frozen), 50 cells"
    chain = pack_chain(axes.trainings, TRUNK)
    assert [len(unit.trainings) for unit in chain] == [50, 100]
    alone = pack_chain(axes.trainings, ExecutionConfig(sharing="none"))
    assert sorted(unit.trainings[0].key for unit in alone) == sorted(one.key for one in axes.trainings)
    assert len({unit.trainings[0].key for unit in alone}) == 150


def test_an_axis_with_a_wrong_value_is_refused(small: SweepConfig) -> None:
    with pytest.raises(ConfigError, match="variant x: unknown variant 'x'"):
        replace(small, axes=(Axis(key="objectives.variant", values=("paper", "x")),))
