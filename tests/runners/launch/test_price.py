"""The price of a sweep that has never run: against the sizes of real models, and against what sweeps took."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from goal_core.data import DataConfig, published_counts
from goal_core.models import BackboneConfig, BertConfig, GruConfig, ModelConfig, XvlmConfig, build_backbone
from goal_core.models.frameworks import framework_of
from runners.launch.calibration import BACKBONES
from runners.launch.estimate import StagePlan, plan_published
from runners.launch.price import HeadSize, head_size
from sweeps import load_sweep
from tests.helpers.sweep_cases import resolved

SMALL_BERT = BertConfig(weights="random", layers=4, width=128, heads=4)


class _Words:
    """Stands for a tokenizer of a given size."""

    def __len__(self) -> int:
        return 1000


def size_of(model: ModelConfig, data: DataConfig) -> HeadSize:
    return head_size(model, data, width=96, words=1000)


@pytest.mark.parametrize("framework", ["vsepp", "vse_infty", "xvlm"])
def test_the_counted_size_of_the_heads_is_that_of_the_real_ones(framework: str) -> None:
    model = ModelConfig(
        framework=framework,  # type: ignore[arg-type]
        backbone=BackboneConfig(name="test_resnet", weights="random"),
        text=GruConfig(word_dim=50),
        embed_dim=64,
        bert=SMALL_BERT,
        xvlm=XvlmConfig(fusion_layer=2),
    )
    data = resolved("con/con").cells[0].data
    heads = framework_of(model).heads(model, num_features=96, tokenizer=_Words(), seed=1)  # type: ignore[arg-type]

    real = sum(parameter.numel() for parameter in heads.parameters())

    # Biases, norms and the small pooling networks are not counted; in a model this small they are a few percent.
    assert size_of(model, data).params == pytest.approx(real, rel=0.05)


@pytest.mark.parametrize("name", ["test_byobnet", "test_resnet", "test_vit", "swin_mini_patch8_window4", "resnet18"])
def test_the_calibration_states_the_size_of_the_backbone(name: str) -> None:
    row = BACKBONES[name]
    backbone = build_backbone(BackboneConfig(name=name, weights="random"), image_size=row.image_size, seed=0)

    assert sum(parameter.numel() for parameter in backbone.parameters()) / 1e6 == pytest.approx(row.params_m, rel=0.02)
    assert backbone.num_features == row.width


def published(name: str, *overrides: str) -> list[StagePlan]:
    config = load_sweep(name, overrides, environ={})
    return plan_published(config, published_counts(config.data))


def test_hours_grow_with_the_work_and_shrink_where_cells_share_it() -> None:
    frozen, finetune = published("coco_vsepp")
    small, _ = published("coco_vsepp", "data.image.size=112")
    alone, _ = published("coco_vsepp", "execution.sharing=none")
    waiting, _ = published("coco_vsepp", "resources.loader_workers=0")
    single, _ = published("coco_vsepp", "seeds=[1]")
    assert frozen.hours
    assert finetune.hours
    assert finetune.hours > 3 * frozen.hours  # every cell trains a backbone of its own
    for less, more in ((small, frozen), (frozen, alone), (frozen, waiting)):
        assert less.hours
        assert more.hours
        assert less.hours < more.hours
    assert frozen.memory_mb
    assert finetune.memory_mb
    assert finetune.memory_mb > 3 * frozen.memory_mb
    assert frozen.memory_from == "calibration"
    assert single.hours == pytest.approx(frozen.hours / 3)
    assert single.disk_mb == pytest.approx(frozen.disk_mb / 3)  # type: ignore[operator]


def test_chunks_cost_a_second_pass_and_several_gpus_divide_the_encoding() -> None:
    whole, chunked, four, quarter = (
        published("coco_vsepp", *overrides)[1]
        for overrides in ((), ("stages.finetune.micro_batch=32",), ("resources.gpus=4",), ("resources.gpus=0.25",))
    )
    assert whole.hours and chunked.hours and four.hours and quarter.hours  # noqa: PT018
    assert 1.2 < chunked.hours / whole.hours < 1.35
    assert 1 / 4 < four.hours / whole.hours < 1 / 3  # what each GPU does by itself is not divided
    assert four.gpu_hours == 4 * four.hours
    assert quarter.gpu_hours == whole.gpu_hours / 4  # type: ignore[operator]


def test_stacked_cells_start_their_kernels_once_and_recomputed_blocks_pass_twice() -> None:
    heads, _ = published("coco_vsepp")
    trunk, _ = published("coco_vsepp", "execution.sharing=trunk")
    assert heads.hours and trunk.hours  # noqa: PT018
    saved = heads.steps / heads.cells * (heads.cells - heads.units) * 0.01 / 3600  # 10 ms a step of a cell
    assert trunk.hours - heads.hours == pytest.approx(saved)
    (_, plain), (_, again) = published("coco_vsepp"), published("coco_vsepp", "stages.finetune.recompute=true")
    assert plain.hours and again.hours and plain.memory_mb and again.memory_mb  # noqa: PT018
    assert 1.2 < again.hours / plain.hours < 1.35
    assert again.memory_mb < plain.memory_mb


def test_a_backbone_without_calibration_has_no_price() -> None:
    plans = published("coco_vsepp", "model.backbones=[convnext_base]")
    assert [(plan.hours, plan.hours_from, plan.disk_mb, plan.disk_from) for plan in plans] == [(None,) * 4] * 2


def test_plan_shows_no_time_where_a_backbone_has_no_price_and_says_what_it_knows(planned: Callable[..., str]) -> None:
    sweep = ("coco_vsepp", "--set", "model.backbones=[resnet152, convnext_base]", "--devices", "4")
    shown = planned(*sweep)
    unknown = "no time, disk space or memory is known of convnext_base; resnet152: ~"
    assert f"-- frozen: {unknown}" in shown
    assert f"-- finetune: {unknown}" in shown
    assert ">= the memory of the other backbones" in shown
    assert "the price of convnext_base is assumed: instead of times, the table shows multiples of the end on 4" in shown
    row = next(line for line in shown.splitlines() if line.strip().startswith("4 "))
    assert row.split()[3] == "1.00"
    assert not any(unit in row for unit in (" s", " min", " h", " days"))

    found = json.loads(planned(*sweep, "--json", "--growth"))
    assert found["unpriced"] == ["convnext_base"]
    assert len(found["schedules"]) == 10
    for schedule in found["schedules"]:
        assert {schedule[name] for name in ("end_s", "bound_s", "critical_s", "idle", "tail_s", "work_s")} == {None}
    assert [stage["hours"] for stage in found["stages"]] == [None, None]
    assert [one["hours"] is None for one in found["stages"][0]["backbones"]] == [False, True]


def test_plan_explains_a_calibrated_memory_where_it_has_no_other_price(
    planned: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runners.launch.estimate.disk_mb", lambda *arguments: None)
    monkeypatch.setattr("runners.launch.prices.Prices.basis", lambda self, unit: "assumed")
    shown = planned("coco_vsepp")
    (row,) = (line for line in shown.splitlines() if line.strip().startswith("frozen  "))
    assert row.split()[-3] == "--"
    assert row.split()[-2].startswith("~")
    assert "~ not measured here: a calibration for an RTX 3090" in shown
    assert "memory about\n  30 %" in shown


def test_plan_of_a_sweep_that_never_ran_says_what_its_price_rests_on(planned: Callable[..., str]) -> None:
    shown = planned("coco_vsepp")
    assert "~ not measured here: a calibration for an RTX 3090, right within a factor of about 3" in shown
    assert "~1,800" in shown
    assert "GPU hours" in shown
    assert "frozen: 45 cells as " in shown
    assert "ends after" in shown
    assert "--measure trains a few steps" in shown

    grown = json.loads(planned("coco_vsepp", "--json", "--devices", "8", "--growth"))
    assert [one["devices"] for one in grown["schedules"]] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    ends = [one["end_s"] for one in grown["schedules"]]
    assert ends == sorted(ends, reverse=True)
    assert all(one["bound_s"] <= one["end_s"] for one in grown["schedules"])
    assert [one["units"] for one in grown["stages"]] == list(grown["schedules"][3]["units"].values())
    assert grown["packing"][0].startswith("frozen: 45 cells as 6 units of 7 to 8 on 8 GPUs, because ")

    frozen, finetune = json.loads(planned("scenes", "--json", "--store", "none"))
    # What the scenes took on one core of the calibrated machine: 0.050 h, 0.022 h and 46 MB a stage.
    assert (frozen["hours_from"], frozen["disk_from"]) == ("calibration", "calibration")
    assert 0.05 / 3 < frozen["hours"] < 0.05 * 3
    assert 0.022 / 3 < finetune["hours"] < 0.022 * 3
    assert frozen["disk_mb"] == pytest.approx(45.7, rel=0.2)


def test_plan_promises_no_measurement_of_disk_space(
    planned: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runners.launch.estimate.disk_mb", lambda *arguments: None)
    shown = planned("coco_vsepp")
    assert "-- frozen: no disk space is known of resnet152." in shown
    assert "the calibration lacks these backbones; the first finished cells tell" in shown
