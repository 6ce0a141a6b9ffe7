"""How many units share a GPU: as many as fit and help, and one where anything needed is not known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from goal_core.data import published_counts
from runners.execution.capacity import Machine, Resources
from runners.launch import devices as devices_module
from runners.launch.devices import Devices, of_machines, of_ray, to_plan_for
from runners.launch.estimate import published_prices, sweep_prices, unopened
from runners.launch.kept_memory import keep_memory
from runners.launch.packing import Choice, choose
from runners.launch.prices import Measured, Prices
from runners.store import Attempt
from sweeps import SweepError, Unit, load_sweep
from tests.helpers.in_process import launch, sweep_in

ALONE = "execution.cells_per_unit=1"


def prices_of(*overrides: str, **changes: object) -> Prices:
    config = load_sweep("coco_vsepp", ["resources.loader_workers=0", *overrides], environ={})
    return replace(published_prices(config, published_counts(config.data)), **changes)  # type: ignore[arg-type]


def chosen(*overrides: str, prices: Prices | None = None, devices: int = 8, **more: object) -> Choice:
    prices = prices or prices_of(*overrides)
    at_hand = Devices(count=devices, kind="GPU", **{"memory_mb": 80_000.0, "units_each": 4, **more})  # type: ignore[arg-type]
    return choose(unopened(prices.config).trainings, prices.config, prices, at_hand)


def said(choice: Choice) -> str:
    return "\n".join(line for line in choice.lines(choice.prices.config) if " GPU" in line and "cells as" not in line)


def test_units_that_wait_for_their_images_share_a_gpu_and_fine_tuned_ones_have_their_own() -> None:
    choice = chosen(ALONE)
    assert choice.packing.per_gpu == {"frozen": 4, "finetune": 1}
    frozen, finetune = said(choice).splitlines()
    assert frozen.startswith(
        "frozen: 4 units of 1 cell share each GPU: a unit needs 6.4 GB of 80 GB (estimated, doubled"
    )
    assert "keeps it busy for about 2" in frozen
    assert finetune.startswith("finetune: each unit has a GPU of its own, because a unit needs 49 GB of 80 GB (")
    end, without = choice.packing.schedule.end_s, choice.unshared.schedule.end_s
    assert end <= 0.9 * without
    assert frozen.endswith("; the sweep then ends after 7.8 days, with a GPU for each unit after 12.8 days")
    assert chosen(ALONE).packing.per_gpu == choice.packing.per_gpu


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"memory_mb": None}, "the memory of a GPU is not known"),
        ({"memory_mb": 9000.0}, "a unit needs 6.4 GB of 9.0 GB (estimated, doubled for safety; --measure finds out)"),
        ({"units_each": 1}, "the cores beside a GPU leave room for 1 (resources.cpus, loader_workers)"),
        ({"grows": True}, "the cluster adds machines by itself"),
        ({"others_mb": 5000.0}, "others use 5.0 GB of a GPU of this machine"),
    ],
)
def test_each_unit_has_a_gpu_of_its_own_where_sharing_is_not_known_to_be_safe(more: dict[str, Any], why: str) -> None:
    choice = chosen(ALONE, **more)
    assert set(choice.packing.per_gpu.values()) <= {1}
    assert f"each unit has a GPU of its own, because {why}" in said(choice)


def test_what_is_not_known_of_a_backbone_keeps_its_stage_from_sharing() -> None:
    choice = chosen(ALONE, "model.backbones=[resnet152, convnext_base]")
    assert set(choice.packing.per_gpu.values()) <= {1}
    assert "because what a unit of convnext_base needs is not known" in said(choice)


def test_units_that_keep_a_gpu_busy_do_not_share_it() -> None:
    # Loader processes decode the images, so the GPU has no wait left to fill.
    busy = chosen(ALONE, "resources.loader_workers=8", units_each=16)
    assert set(busy.packing.per_gpu.values()) <= {1}
    assert "would not end 10 % earlier with several on one" in said(busy)


def test_no_more_units_share_a_gpu_than_help() -> None:
    (frozen,) = {one.most for name, one in chosen(ALONE, units_each=16).fits.items() if name == "frozen"}
    assert frozen == 5  # each keeps it busy for 21 % of the time
    few = chosen(ALONE, "seeds=[1]", "objectives={only: [con/con, sig/cir]}", units_each=16)
    assert set(few.packing.per_gpu.values()) <= {1}  # two units on eight GPUs
    assert "; the sweep then ends" not in said(few)


def test_the_sweep_or_a_stage_sets_the_number() -> None:
    choice = chosen(ALONE, "execution.units_per_gpu=2")
    assert choice.packing.per_gpu == {"frozen": 2, "finetune": 2}
    assert "frozen: 2 units share each GPU (units_per_gpu: 2)\n" in said(choice)
    assert "finetune: 2 units share each GPU (units_per_gpu: 2); no more than 1 should: a unit needs" in said(choice)
    stage = chosen(ALONE, "stages.frozen.units_per_gpu=3", "execution.units_per_gpu=1")
    assert stage.packing.per_gpu == {"frozen": 3, "finetune": 1}
    one = chosen(ALONE, "execution.units_per_gpu=1")
    assert set(one.packing.per_gpu.values()) == {1}
    assert one.packing.schedule == one.unshared.schedule
    with pytest.raises(SweepError, match=r"units_per_gpu: 2 needs resources.gpus 1, got 0.5"):
        load_sweep("coco_vsepp", ["resources.gpus=0.5", "stages.frozen.units_per_gpu=2"], environ={})
    with pytest.raises(SweepError, match=r"units_per_gpu must be 1 or more, or auto, got 0"):
        load_sweep("coco_vsepp", ["execution.units_per_gpu=0"], environ={})


def test_recorded_memory_comes_before_a_measurement_and_this_before_the_count() -> None:
    prices = prices_of()
    trainings = [one for one in unopened(prices.config).trainings if one.stage.name == "frozen"]
    kind = trainings[0].cell.model, "frozen"
    three, six = (Unit(trainings=tuple(trainings[:count])) for count in (3, 6))
    counted = prices.memory(three)
    assert counted
    assert prices.beside_others(three) == (2 * counted.mb, "calibration")
    measured = {kind: Measured(common_s=0.0, own_s=1.0, memory_mb=(1000.0, 100.0))}
    prices = replace(prices, measured=measured)
    assert prices.beside_others(three) == (1300 + 600, "measured")  # the CUDA context comes on top
    prices = replace(prices, peaks={kind: [(4000.0, 3), (2000.0, 1)]})
    found = [prices.beside_others(unit) for unit in (three, six)]
    assert found == [(6000 + 600, "finished"), (12_000 + 600, "finished")]


def test_a_unit_that_is_faster_than_calibrated_counts_as_busier() -> None:
    prices = prices_of()
    unit = Unit(trainings=tuple(unopened(prices.config).trainings[:1]))
    kind = unit.trainings[0].cell.model, "frozen"
    before = prices.busy(unit)
    assert before
    assert replace(prices, scale={kind: 0.5}).busy(unit) == pytest.approx(2 * before)
    assert replace(prices, scale={kind: 3.0}).busy(unit) == before
    assert replace(prices, scale={kind: 0.01}).busy(unit) == 1.0


def test_images_that_are_decoded_already_leave_a_gpu_less_idle() -> None:
    prices = prices_of(ALONE)
    assert chosen(prices=prices).packing.per_gpu["frozen"] == 4
    decoded = chosen(prices=replace(prices, decoded=True))
    assert set(decoded.packing.per_gpu.values()) <= {1}


def test_memory_that_was_measured_here_is_kept_for_the_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOAL_SWEEP_CACHE", str(tmp_path / "cache"))
    sweep = sweep_in(tmp_path, "resources.gpus=1")
    kind = sweep.config.model.models[0], "frozen"
    keep_memory(sweep, {kind: Measured(common_s=1.0, own_s=1.0, memory_mb=(1000.0, 50.0))})
    prices = sweep_prices(sweep)
    assert prices.kept == {kind: (1000.0, 50.0)}
    assert prices.beside_others(Unit(trainings=tuple(sweep.by_stage[0]))) == (1100 + 600, "measured")
    assert not prices.measured  # times are not kept
    for change in ("stages.frozen.batch_size=8", "precision=bf16"):
        assert sweep_prices(sweep_in(tmp_path, "resources.gpus=1", change)).kept == {}


def attempt_with(memory_mb: float, **more: Any) -> Attempt:
    how = {"outcome": "done", "ended": 9.0, "progressed": True, "shared_by": 2, **more}
    return Attempt(n=1, launch_id="L", host="h", pid=1, started=1.0, versions={}, memory_mb=memory_mb, **how)


def test_peaks_are_read_from_attempts_that_trained_as_the_sweep_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runners.execution.worker.peak_memory_mb", lambda: 1234.5)
    sweep = sweep_in(tmp_path)
    assert launch(sweep, monkeypatch).status == 0
    peaks = sweep_prices(sweep).peaks
    (model,) = sweep.config.model.models
    assert peaks == {(model, stage): [(1234.5, 2)] * 2 for stage in ("frozen", "finetune")}
    attempts = sweep.store.folder(sweep.trainings[0]).attempts
    for useless in (attempt_with(99.0, progressed=False), attempt_with(99.0, micro_batch=4), attempt_with(0.0)):
        attempts.update(useless)
        assert sweep_prices(sweep).peaks[model, "frozen"] == [(1234.5, 2)]


def machine(**resources: float) -> Machine:
    names = {name.replace("__", ":"): amount for name, amount in resources.items()}
    return Machine(id="1", host="a", address="b", resources=names)


def test_the_smallest_gpu_and_the_fewest_cores_beside_one_count() -> None:
    large, small = machine(CPU=64, GPU=4, accelerator_type__H100=1), machine(CPU=16, GPU=2, accelerator_type__T4=1)
    found = of_machines([large, small], Resources(cpus=4, gpus=1))
    assert (found.count, found.memory_mb, found.units_each) == (6, 16_000, 2)
    assert of_machines([large], Resources(cpus=4, gpus=0.5)).units_each == 1
    assert of_machines([large], Resources(cpus=32, gpus=1)).units_each == 1


def test_a_plan_and_a_launch_on_this_machine_see_the_same_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"memory.total": "81559\n81559\n", "memory.used": "3\n4096\n"}

    def smi(command: Sequence[str], **options: object) -> Any:
        (what,) = (answers[key] for key in answers for word in command if key in word)
        return type("Done", (), {"stdout": what})

    monkeypatch.setattr(devices_module.subprocess, "run", smi)
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    need = Resources(cpus=2, gpus=1)
    planned = to_plan_for(need, None)
    ray = [machine(CPU=16, GPU=2, accelerator_type__H100=1)]
    assert planned == of_ray(ray, need, grows=False, is_cluster=False)
    assert (planned.count, planned.units_each) == (2, 4)
    assert (planned.memory_mb, planned.others_mb) == pytest.approx((85_520.8, 4295.0), abs=0.1)
    cluster = of_ray(ray, need, grows=False, is_cluster=True)
    assert (cluster.memory_mb, cluster.others_mb) == (80_000, 0)  # nobody asks its machines
