"""Seconds of a step: counted, measured here, recorded of a GPU, or taken by trainings of the store."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.goal_core.models.sizes import DataSize
from goal_sweep.runners.launch.opened import open_sweep
from goal_sweep.runners.planning.estimates import CARDS, card_named
from goal_sweep.runners.planning.packing import Speed, Speeds, in_store, measured, recorded
from goal_sweep.sweeps import Unit, load_sweep, pack
from tests.helpers.paths import SCENES
from tests.helpers.planning_cases import published_speeds, rows_of, unit_of
from tests.helpers.store_cases import claimed


def step_s(stage: str, *overrides: str, gpu: str = "A100") -> float:
    speeds = replace(published_speeds("coco_vsepp", "precision=fp32", *overrides), gpu=gpu)
    speed = speeds.of(unit_of(speeds, stage))
    assert speed is not None
    assert speed.source == "counted"
    return speed.step_s


def test_a_step_takes_its_arithmetic_and_its_traffic_at_a_share_of_the_peaks() -> None:
    backbone, heads = 128 * 11.51e9, 3 * 128 * (2048 * 1024 + 14 * 3 * 1024 * (300 + 1024))
    kept = 3 * 128 * 2 * 177.42e6 + 32 * 58.14e6  # what autograd would keep, written and read in each pass
    work_s = 2 * (3 * backbone + heads) / 19.5e12 + kept / 1555e9
    assert step_s("finetune") == pytest.approx(work_s / 0.55, rel=0.02)
    work_s = 2 * (3 * backbone + heads) / 989e12 + (kept / 2) / 3350e9
    assert step_s("finetune", "precision=bf16", gpu="H100") == pytest.approx(work_s / 0.55, rel=0.05)


def test_a_plan_agrees_with_what_an_h200_took() -> None:
    """ResNet-152 at 224 px in bf16: a cell that is fine-tuned, and 15 that are stacked on a frozen one."""
    assert step_s("finetune", "precision=bf16", gpu="H200") == pytest.approx(0.0430, rel=0.05)
    assert step_s("frozen", "precision=bf16", gpu="H200") * (0.9 + 15 * 0.1) == pytest.approx(0.0360, rel=0.1)


PUBLISHED = {
    # timm, results/benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv, train_samples_per_sec.
    ("RTX 3090", "bf16", 0.6, 1.0): "resnet18 3482 resnet50 1218 resnet101 748 resnet152 501 resnext101_32x8d 313 "
    "vit_small_patch16_224 1058 vit_base_patch16_224 393 swin_base_patch4_window7_224 281 efficientnet_b0 1752",
    # NVIDIA/DeepLearningExamples, PyTorch/Classification/ConvNets; resnet152 and ViT: willgpaik, pytorch-ddp-bench.
    ("A100-80G", "bf16", 0.9, 1.6): "resnet50 2470 efficientnet_b0 2489 resnet152 1190 vit_base_patch16_224 1030",
    ("A100", "bf16", 0.9, 1.6): "resnext101_32x4d 908",
    ("A100-80G", "tf32", 1.4, 2.0): "resnet50 938 efficientnet_b0 1078",
    ("A100", "tf32", 1.4, 2.0): "resnext101_32x4d 300",
}
"""Images a second of trainings on one GPU at 224 px, in half precision or TF32, not compiled; and how far plans are."""


@pytest.mark.parametrize(("gpu", "precision", "lowest", "highest"), PUBLISHED)
def test_a_plan_is_as_far_from_published_trainings_as_its_page_says(
    gpu: str, precision: str, lowest: float, highest: float
) -> None:
    words = PUBLISHED[gpu, precision, lowest, highest].split()
    for name, rate in zip(words[::2], words[1::2], strict=True):
        planned = 128 / step_s("finetune", f"model.backbones=[{name}]", f"precision={precision}", gpu=gpu)
        assert lowest < planned / float(rate) < highest, name


def test_a_step_grows_with_the_work() -> None:
    assert step_s("frozen", "data.image.size=112") < step_s("frozen")
    assert 1.2 < step_s("finetune", "stages.finetune.micro_batch=32") / step_s("finetune") < 1.35
    assert step_s("frozen", "resources.gpus=0.5") == pytest.approx(2 * step_s("frozen"))
    assert step_s("frozen", "data.image.augment=none") < 0.3 * step_s("frozen")  # features are computed once
    one, two = (step_s("finetune", "resources.gpus=0", f"resources.cpus={cpus}") for cpus in (1, 2))
    assert one == pytest.approx(2 * two)


def test_a_unit_is_never_shorter_than_the_decoding_of_its_images_which_its_cells_share() -> None:
    speeds = published_speeds("coco_vsepp", "resources.loader_workers=1")
    unit = unit_of(speeds, "frozen")
    assert speeds.seconds(unit) == pytest.approx(speeds.steps(unit.stage) * 128 * 0.0036, rel=0.001)
    assert "decoding takes 461 ms a step" in speeds.waits(unit)
    many = published_speeds("coco_vsepp", "resources.loader_workers=64")
    assert many.waits(unit_of(many, "finetune")) == ""


@pytest.mark.parametrize(("card", "hours"), [("H100", 50), ("H200", 45)])
def test_the_fast_flagship_takes_about_two_days_of_one_card(card: str, hours: float) -> None:
    rows = rows_of("coco_vsepp_fast", f"resources.accelerator={card}", environ={})
    assert sum(row["hours"] for row in rows) < hours


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("A100-80G", "A100-80G"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 3090", "RTX 3090"),
        ("rtx4090", "RTX 4090"),
        ("Quadro", None),
        ("", None),
    ],
)
def test_a_card_is_found_by_the_names_of_ray_and_of_the_driver(name: str, card: str | None) -> None:
    found = card_named(name)
    assert (found and found.name) == card
    assert all(card.half >= card.tf32 >= card.fp32 for card in CARDS)


def test_what_nobody_knows_has_no_time_and_takes_none_from_another() -> None:
    unknown = published_speeds("coco_vsepp", "model.backbones=[convnext_base]")
    assert unknown.seconds(unit_of(unknown, "frozen")) is None
    other = replace(published_speeds("coco_vsepp"), gpu="Quadro")
    assert other.seconds(unit_of(other, "frozen")) is None
    known = {unit_of(unknown, "frozen").kind: Speed(0.5, "measured here")}
    assert replace(unknown, known=known).seconds(unit_of(unknown, "frozen")) == pytest.approx(60 + 4426 * 30 * 0.5)
    assert replace(unknown, known=known).seconds(unit_of(unknown, "finetune")) is None


def test_a_unit_takes_its_steps_and_what_its_cells_do_not_share() -> None:
    speeds = published_speeds("coco_vsepp", "resources.loader_workers=64")
    one, all_ = (speeds.seconds(unit_of(speeds, "frozen", cells)) or 0.0 for cells in (1, 15))
    assert (all_ - 60) / (one - 60) == pytest.approx(0.9 + 15 * 0.1)


def test_a_gpu_record_gives_the_steps_of_its_own_models(tmp_path: Path) -> None:
    speeds, path = published_speeds("coco_vsepp_fast"), tmp_path / "gpu.json"
    row = {"ms a step": 240.0, "cell steps/s": 15 / 0.24}
    tables = {"resnet152 at 224 px, batch 128, bf16, images from pack": {"heads-compiled": row}}
    path.write_text(json.dumps({"steps": {"frozen": {"status": "late", "tables": tables}}}))
    units = [unit_of(speeds, stage) for stage in ("frozen", "finetune")]
    assert recorded(path, units) == {units[0].kind: Speed(pytest.approx(0.24 / 2.4), "gpu record")}  # type: ignore[arg-type]
    other = published_speeds("coco_vsepp")
    assert recorded(path, [unit_of(other, "frozen")]) == {}
    path.write_text('{"steps": {}}')
    with pytest.raises(GoalError, match=r"gpu.json is no gpu.json of make gpu"):
        recorded(path, units)


def test_trainings_of_the_store_tell_their_speed_whoever_trained_beside_them(tmp_path: Path) -> None:
    sweep = open_sweep(load_sweep("coco_vsepp+smoke", [f"store={tmp_path}"]))
    assert in_store(sweep.store, sweep.statuses()) == {}
    training = sweep.by_stage[1][0]
    folder = claimed(sweep.store.folder(training), "launch", 3)
    taken = {"time/train_s": 4.0, "time/val_s": 1.0, "time/step_ms": 200.0}  # of one of three cells
    folder.write_metrics([{"epoch": 1, "time": 1.0, "metrics": taken}])
    known = in_store(sweep.store, sweep.statuses())
    unit = Unit(trainings=(training,) * 3)
    assert list(known) == [unit.kind]
    speeds = Speeds(sweep.config, DataSize.of_dataset(sweep.dataset), known=known)
    seconds = speeds.seconds(unit)
    assert seconds is not None
    assert seconds - 3.0 == pytest.approx(speeds.steps(unit.stage) * 3 * 0.2 * 5 / 4)
    assert known[unit.kind].source == "in the store"


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_measured_kinds_have_a_speed_of_their_own(tmp_path: Path) -> None:
    sweep = open_sweep(load_sweep(SCENES, ["resources.loader_workers=1", f"store={tmp_path}", "seeds=[1]"]))
    speeds = Speeds(sweep.config, DataSize.of_dataset(sweep.dataset))
    known = measured(pack(sweep.trainings, sweep.config.execution), speeds, sweep.store)
    assert {stage for _, stage in known} == {"frozen", "finetune"}
    assert all(one.step_s > 0 and one.source == "measured here" for one in known.values())
