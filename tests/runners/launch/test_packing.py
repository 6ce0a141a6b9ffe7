"""How many cells a unit gets: together where they have much in common, spread where they have not, as memory allows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from goal_core.data import published_counts
from runners.execution.capacity import Machine, Resources
from runners.launch.devices import Devices, of_machines, on_this_machine, to_plan_for
from runners.launch.estimate import published_prices, unopened
from runners.launch.order import planned
from runners.launch.packing import Choice, choose, duration
from runners.launch.prices import Measured, Memory
from runners.launch.simulation import simulate
from sweeps import load_sweep, pack_chain


def chosen(*overrides: str, devices: int = 8, sweep: str = "coco_vsepp", **more: object) -> Choice:
    config = load_sweep(sweep, overrides, environ={})
    prices = published_prices(config, published_counts(config.data))
    at_hand = Devices(count=devices, kind="GPU", **more)  # type: ignore[arg-type]
    return choose(unopened(config).trainings, config, prices, at_hand)


def test_frozen_cells_stay_together_and_fine_tuned_ones_are_spread_over_all_devices() -> None:
    decoded_in_turn = ["resources.loader_workers=0"]
    choice = chosen(*decoded_in_turn)
    assert choice.packing.limits == {"frozen": 15, "finetune": 3}
    frozen, finetune, gpus = choice.lines(load_sweep("coco_vsepp", decoded_in_turn, environ={}))
    assert gpus == "frozen, finetune: each unit has a GPU of its own, because the memory of a GPU is not known"
    assert frozen.startswith("frozen: 45 cells as 3 units of 15 on 8 GPUs, because the sweep then ends after ")
    assert finetune.startswith("finetune: 45 cells as 15 units of 3 on 8 GPUs, because the sweep then ends after ")
    assert "; with units of up to 15, after " in finetune
    assert "; with units of 1, after " in finetune


def test_no_packing_ends_much_earlier_and_the_same_is_chosen_again() -> None:
    for devices in (1, 2, 5, 64):
        choice = chosen(devices=devices)
        ends = [one.schedule.end_s for one in choice.others]
        assert choice.packing.schedule.end_s <= 1.02 * min(ends)
        assert chosen(devices=devices).packing.limits == choice.packing.limits
        assert len(ends) == 49


def test_one_device_gets_what_costs_least() -> None:
    assert chosen(devices=1).packing.limits == {"frozen": 15, "finetune": 15}


def test_a_cluster_that_grows_gets_units_as_small_as_cost_nothing() -> None:
    choice = chosen("resources.loader_workers=8", devices=1, grows=True)
    assert choice.packing.limits["frozen"] >= 8
    assert choice.packing.limits["finetune"] == 1
    assert choice.packing.schedule.work_s <= 1.05 * min(one.schedule.work_s for one in choice.others)


def test_a_unit_fits_into_the_memory_of_its_device() -> None:
    choice = chosen(devices=1, memory_mb=35_000.0)
    assert choice.packing.limits["frozen"] == 15
    assert 1 <= choice.packing.limits["finetune"] < 8
    finetune = list(choice.lines(load_sweep("coco_vsepp", environ={})))[1]
    assert f"; no more than {choice.too_large['finetune']} fit into its memory" in finetune
    assert chosen(devices=1, memory_mb=1000.0).packing.limits == {"frozen": 1, "finetune": 1}  # then it fails alone


def reasons(choice: Choice, *overrides: str) -> list[str]:
    config = load_sweep("coco_vsepp", overrides, environ={})
    lines = (line for line in choice.lines(config) if "a GPU of its own" not in line)
    return [line.partition(", because ")[2] for line in lines]


def test_a_limit_of_the_known_memory_holds_and_names_the_backbone_that_it_leaves_out() -> None:
    alone = chosen(devices=1, memory_mb=35_000.0)
    both = chosen("model.backbones=[resnet152, convnext_base]", devices=1, memory_mb=35_000.0)
    assert both.packing.limits["finetune"] == alone.packing.limits["finetune"]
    limit = f"; no more than {alone.too_large['finetune']} fit into its memory"
    assert reasons(alone)[1].endswith(limit)
    assert reasons(both)[1].endswith(f"{limit} (that of convnext_base is not known)")


def test_where_there_is_no_choice_the_reason_says_what_leaves_none() -> None:
    assert reasons(chosen(devices=1, memory_mb=1000.0)) == ["no more than 1 fits into its memory"] * 2
    single = "objectives={only: [con/con]}"
    assert reasons(chosen(single), single) == ["no two of them differ only in their objective"] * 2
    frozen = "stages.frozen.cells_per_unit=1"
    assert reasons(chosen(frozen), frozen) == ["", "the units before them have no more cells"]


def test_packings_are_compared_by_the_units_that_come_out() -> None:
    choice = chosen("objectives={only: [con/con, sig/cir, lin/nca, con/nca]}", devices=64)
    frozen, finetune = reasons(choice)
    for reason in (frozen, finetune):
        assert reason.startswith("the sweep then ends after ")
    # A limit of four cells gives units of one where those before them have one cell each.
    small = replace(choice, packing=next(one for one in choice.others if one.limits == {"frozen": 1, "finetune": 4}))
    assert reasons(small)[1] == "the units before them have no more cells"
    like = {(*one.limits.values(),): one for one in choice.others}
    same = replace(like[2, 2], schedule=like[4, 2].schedule)
    end = f"{duration(same.schedule.end_s)} (device time {duration(same.schedule.work_s)})"
    assert reasons(replace(choice, packing=like[4, 2], others=[like[4, 2], same]))[0] == (
        f"the sweep then ends after {end}; with units of up to 2 the same, in 6 units"
    )


def test_prices_that_are_not_known_are_not_mixed_with_those_that_are() -> None:
    known, both = chosen(), chosen("model.backbones=[resnet152, convnext_base]")
    assert (known.unpriced, both.unpriced) == ([], ["convnext_base"])
    # A cell without a price counts like one that has one, so twice the cells take about twice as long.
    assert 1.5 < both.packing.schedule.work_s / known.packing.schedule.work_s < 3
    assert " s " not in " ".join(reasons(both))
    assert "device time" not in " ".join(reasons(both))


def test_a_part_of_a_gpu_that_is_too_small_for_its_units_is_named() -> None:
    def lines(gpus: str, memory_mb: float, **changes: object) -> list[str]:
        overrides = (f"resources.gpus={gpus}", "execution.cells_per_unit=1")
        config = load_sweep("coco_vsepp", overrides, environ={})
        choice = chosen(*overrides, devices=1, memory_mb=memory_mb * min(1.0, float(gpus)))
        return [line for line in replace(choice, **changes).lines(config) if "its largest unit takes" in line]  # type: ignore[arg-type]

    (finetune,) = lines("0.25", 40_000.0)
    assert finetune.startswith("finetune: its largest unit takes ")
    assert "MB of 40,000 MB of a GPU (estimated; --measure finds out), where resources.gpus=0.25 puts 4: " in finetune
    measured = lines("0.5", 20_000.0, together={"frozen": Memory(9000.0, "measured")})
    assert measured == [
        "frozen: its largest unit takes 9,000 MB of 20,000 MB of a GPU (measured), where resources.gpus=0.5 puts 2: "
        "raise it, or lower cells_per_unit"
    ]
    assert lines("2", 40_000.0) == lines("1", 1000.0) == []


def test_settings_of_a_stage_come_before_those_of_the_sweep() -> None:
    overrides = ("stages.frozen.cells_per_unit=5", "stages.finetune.sharing=none")
    choice = chosen(*overrides)
    assert choice.packing.limits == {}
    config = load_sweep("coco_vsepp", overrides, environ={})
    assert list(choice.lines(config))[:2] == [
        "frozen: 45 cells as 9 units of 5 on 8 GPUs (cells_per_unit: 5)",
        "finetune: 45 cells as 45 units of 1 on 8 GPUs (sharing: none)",
    ]


def test_a_backbone_without_a_price_is_packed_by_an_assumption_that_is_named() -> None:
    choice = chosen("model.backbones=[convnext_base]")
    assert choice.packing.limits["frozen"] >= 8
    assert choice.packing.limits["finetune"] <= 5
    config = load_sweep("coco_vsepp", ["model.backbones=[convnext_base]"], environ={})
    line = next(choice.lines(config))
    assert "because the sweep takes 1." in line
    assert " times as long with units of 1 (assumed prices: convnext_base)" in line


def test_a_measured_price_comes_before_the_calibration() -> None:
    config = load_sweep("coco_vsepp", environ={})
    prices = published_prices(config, published_counts(config.data))
    (model,) = config.model.models
    measured = {
        (model, "frozen"): Measured(common_s=0.0, own_s=100.0),
        (model, "finetune"): Measured(common_s=900, own_s=1),
    }
    prices = replace(prices, measured=measured)
    choice = choose(unopened(config).trainings, config, prices, Devices(count=8, kind="GPU"))
    # Now it is the frozen cells that have nothing in common.
    assert choice.packing.limits == {"frozen": 8, "finetune": 15}


def test_the_simulated_launch_packs_the_second_stage_within_the_units_of_the_first() -> None:
    config = load_sweep("coco_vsepp", environ={})
    prices = published_prices(config, published_counts(config.data))
    units = pack_chain(unopened(config).trainings, config.execution, {"frozen": 8, "finetune": 3})
    assert [len(unit.trainings) for unit, _ in units] == [8, 7] * 3 + [3, 3, 2, 3, 2, 2] * 3
    for unit, after in units[6:]:
        assert after is not None
        assert {one.before for one in unit.trainings} <= set(units[after][0].trainings)
    found = simulate(planned(units, config, prices), 6)
    assert found.starts[:6] == (0.0,) * 6
    assert min(found.starts[6:]) < max(found.starts[6:])


def machine(**resources: float) -> Machine:
    names = {name.replace("__", ":"): amount for name, amount in resources.items()}
    return Machine(id="1", host="a", address="b", resources=names)


def test_devices_are_what_ray_reports_and_fits() -> None:
    need = Resources(cpus=8, gpus=0.5)
    large = machine(CPU=32, GPU=4, accelerator_type__H100=1)
    found = of_machines([large, machine(CPU=4, GPU=1), machine(CPU=64)], need)
    assert (found.count, str(found)) == (4, "4 0.5 GPUs")  # the cores are what is short
    assert found.memory_mb == 40_000
    assert of_machines([], need, grows=True).count == 1
    several = of_machines([large, machine(CPU=64, GPU=8, accelerator_type__H100=1)], Resources(cpus=8, gpus=4))
    assert (several.count, str(several), several.memory_mb) == (3, "3 groups of 4 GPUs", 80_000)
    cores = of_machines([machine(CPU=4, memory=8e9)], Resources(cpus=2, gpus=0))
    assert (cores.count, cores.memory_mb) == (2, 4000)


def test_devices_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    here = on_this_machine(Resources(cpus=4, gpus=0))
    assert (here.count, str(here)) == (4, "4 groups of 4 cores")
    assert here.memory_mb
    monkeypatch.setattr("runners.launch.devices._gpu_mb", lambda: [80_000.0, 80_000.0])
    assert on_this_machine(Resources(cpus=4, gpus=0.5)).count == 4
    monkeypatch.setattr("runners.launch.devices._gpu_mb", list)
    alone = on_this_machine(Resources(cpus=4, gpus=1))
    assert (alone.count, alone.memory_mb, str(alone)) == (1, None, "1 GPU")


def test_a_plan_says_which_devices_this_machine_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 16)

    def missing(cpus: int, gpus: float, sizes: int, count: int | None = None) -> str:
        monkeypatch.setattr("runners.launch.devices._gpu_mb", lambda: [80_000.0] * sizes)
        return to_plan_for(Resources(cpus=cpus, gpus=gpus), count).missing

    assert missing(16, 2, 2) == missing(16, 0, 0) == missing(32, 16, 0, count=2) == ""
    assert missing(4, 2, 0) == missing(4, 0.5, 0) == "no GPU is found on this machine"
    assert missing(4, 16, 8) == "a unit needs 16 GPUs, this machine has 8"
    assert missing(32, 1, 8) == missing(32, 0, 0) == "a unit needs 32 cores, this machine has 16"
    unheard_of = "a unit trains on one machine, and common ones have at most 16 GPUs"
    assert missing(4, 32, 8) == missing(4, 32, 0) == missing(4, 32, 8, count=2) == unheard_of
    assert missing(4, 32, 32) == ""  # this one has them
    choice = chosen(missing="no GPU is found on this machine")
    *_, last = choice.lines(load_sweep("coco_vsepp", environ={}))
    assert last == "no GPU is found on this machine: planned as if there were 8 GPUs"


def test_times_are_written_in_units_that_suit_them() -> None:
    assert [duration(one) for one in (4, 89, 600, 9000, 400_000)] == ["4 s", "89 s", "10 min", "2.5 h", "4.6 days"]
