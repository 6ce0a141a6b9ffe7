from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from goal_sweep.goal_core.data.config import KarpathyConfig
from goal_sweep.goal_core.models.config import BackboneConfig, BertConfig, ModelConfig, TextConfig, XvlmConfig
from goal_sweep.goal_core.objectives import ObjectiveConfig, triplet_weights
from goal_sweep.goal_core.training.config import StageConfig
from goal_sweep.sweeps import ResolvedSweep, SweepConfig, load_sweep
from goal_sweep.sweeps.cells import Cell
from goal_sweep.sweeps.identity import cell_settings, content_id, stage_key

KARPATHY = KarpathyConfig(name="coco", root="/data/coco")
MODEL = ModelConfig(backbone=BackboneConfig(name="resnet18", weights="/w/a.safetensors"))
OBJECTIVE = ObjectiveConfig(pair="sig-ms", triplet="cir")
FROZEN = StageConfig(name="frozen", epochs=10, lr=1e-3)
FINETUNE = StageConfig(name="finetune", epochs=5, lr=1e-4)
BACKWARDS = ", ".join(reversed(list(triplet_weights)))


def make_id(**changes: Any) -> str:
    given_: dict[str, Any] = {
        "data": KARPATHY,
        "data_fingerprint": "f0",
        "model": MODEL,
        "weights_id": "sha256:0",
        "objective": OBJECTIVE,
        "seed": 1,
    }
    return content_id(cell_settings(Cell(id="", **(given_ | changes))))


def another(value: Any) -> Any:
    """A different valid value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value * 2 + 1
    return {"none": "crop_flip", "crop_flip": "none", "adam": "adamw"}.get(value, f"{value}x")


def test_content_counts_by_value() -> None:
    assert content_id({"b": 1.0, "a": [1e-4, True, None, -0.0]}) == content_id({"a": (0.0001, True, None, 0), "b": 1})
    assert content_id({"a": 0.1 + 0.2}) != content_id({"a": 0.3})
    assert len({content_id(one) for one in (1, True, "1")}) == 3
    assert content_id(1e300) == content_id(int(1e300))
    with pytest.raises(ValueError, match="JSON"):
        content_id({"a": float("nan")})


@pytest.mark.parametrize(
    "field", [item.name for item in fields(KarpathyConfig) if item.name not in ("format", "image")]
)
def test_a_data_setting_counts_by_name_unless_only_the_fingerprint_tells_what_it_selects(field: str) -> None:
    changed = make_id(data=replace(KARPATHY, **{field: another(getattr(KARPATHY, field))}))
    assert (changed == make_id()) == (field != "min_word_count")


@pytest.mark.parametrize(
    "change",
    [
        {"data_fingerprint": "f1"},
        {"weights_id": "random"},
        {"seed": 2},
        {"tested": False},
        {"model": replace(MODEL, framework="vse_infty")},
        {"model": replace(MODEL, embed_dim=512)},
        {"model": replace(MODEL, text=TextConfig(word_dim=200))},
        {"model": replace(MODEL, backbone=BackboneConfig(name="resnet50", weights="/w/a.safetensors"))},
        {"objective": ObjectiveConfig(pair="sig", triplet="cir")},
        {"objective": ObjectiveConfig(pair="sig-ms", triplet="nca")},
        {"objective": ObjectiveConfig(pair="sig-ms", triplet="cir", variant="released")},
        {"objective": ObjectiveConfig(pair="sig-ms", triplet="cir", params={"tau": 11})},
        {"objective": ObjectiveConfig(pair="sig-ms", triplet="cir", params={"alpha": 3})},
    ],
)
def test_what_makes_the_model_counts(change: dict[str, Any]) -> None:
    assert make_id(**change) != make_id()


def test_numerics_version_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = make_id()
    monkeypatch.setattr("goal_sweep.sweeps.identity.NUMERICS_VERSION", 1_000)
    assert make_id() != before


def test_place_of_the_weights_does_not_count() -> None:
    elsewhere = replace(MODEL, backbone=BackboneConfig(name="resnet18", weights="/other/b.safetensors"))
    assert make_id(model=elsewhere) == make_id()
    assert make_id(model=replace(MODEL, init_from="/other/best.safetensors")) == make_id()
    bert = replace(MODEL, framework="vse_infty", bert=BertConfig(weights="/a/bert"))
    assert make_id(model=bert) == make_id(model=replace(bert, bert=BertConfig(weights="/b/bert")))


def test_parts_that_the_framework_does_not_use_do_not_count() -> None:
    assert make_id(model=replace(MODEL, bert=BertConfig(layers=2), xvlm=XvlmConfig(rerank_top=7))) == make_id()
    vse_infty = replace(MODEL, framework="vse_infty")
    assert make_id(model=replace(vse_infty, bert=BertConfig(layers=2))) != make_id(model=vse_infty)
    assert make_id(model=replace(vse_infty, text=TextConfig(word_dim=7))) == make_id(model=vse_infty)


def test_a_default_written_out_does_not_count() -> None:
    defaults = {key: value for key, value in OBJECTIVE.resolved().items() if key not in ("pair", "triplet")}
    written = ObjectiveConfig(pair="sig-ms", triplet="cir", params=defaults)
    assert written.params != OBJECTIVE.params
    assert make_id(objective=written) == make_id()
    assert make_id(objective=ObjectiveConfig(pair="sig-ms", triplet="cir", params={"tau": 10})) == make_id()


STAGE_CHANGES: dict[str, Any] = {item.name: None for item in fields(StageConfig)} | {
    "lr_drops": (3,),
    "lr_drop_factor": 0.5,
    "beta2": 0.98,
    "lr_warmup": 0.1,
}


@pytest.mark.parametrize("field", sorted(STAGE_CHANGES.keys() - {"name"}))
def test_stage_setting_counts_unless_it_cannot_move_a_number(field: str) -> None:
    changed = replace(FROZEN, **{field: STAGE_CHANGES[field] or another(getattr(FROZEN, field))})
    same = stage_key("c", [changed], "fp32") == stage_key("c", [FROZEN], "fp32")
    neutral = ("checkpoint_every", "collapse_patience", "micro_batch")
    assert same == (field in neutral)


def test_stage_key_counts_cell_precision_and_the_stages_before() -> None:
    key = stage_key("c", [FROZEN, FINETUNE], "fp32")
    others = [
        stage_key("d", [FROZEN, FINETUNE], "fp32"),
        stage_key("c", [FROZEN, FINETUNE], "bf16"),
        stage_key("c", [replace(FROZEN, epochs=9), FINETUNE], "fp32"),
        stage_key("c", [FINETUNE], "fp32"),
        stage_key("c", [FROZEN], "fp32"),
    ]
    assert len({key, *others}) == 6


def test_a_training_tells_the_settings_that_its_key_hashes(small: SweepConfig) -> None:
    weights = {backbone.name: "w" for backbone in small.model.backbones}
    training = ResolvedSweep(config=small, data_fingerprint="f", weights=weights).by_stage[1][-1]
    assert training.settings["stages.frozen.lr"] == "0.001"
    assert training.settings["stages.finetune.epochs"] == "2"
    assert training.settings["objective.tau"] == "10"  # a whole number, however it is written
    assert training.settings["model.backbone_weights"] == "w"
    assert (training.settings["seed"], training.settings["precision"]) == ("2", "fp32")
    assert not {"stages.frozen.micro_batch", "stages.frozen.name", "data.root"} & training.settings.keys()


def keys_of(config: SweepConfig) -> list[tuple[str, tuple[str, ...]]]:
    weights = {backbone.name: f"of {backbone.name}" for backbone in config.model.backbones}
    sweep = ResolvedSweep(config=config, data_fingerprint="f", weights=weights)
    return [(stages[0].cell.id, tuple(one.key for one in stages)) for stages in zip(*sweep.by_stage, strict=True)]


@pytest.mark.parametrize(
    "overrides",
    [
        ["name=renamed"],
        ["resources={cpus: 4, gpus: 1, max_attempts: 9, watchdog: 5}"],
        ["execution={sharing: trunk, cells_per_unit: 8}"],
        ["store=/elsewhere", "tracking=http://127.0.0.1:5000"],
        ["data.name=other"],
        ["stages.frozen.checkpoint_every=7", "stages.finetune.collapse_patience=0", "stages.frozen.micro_batch=4"],
        [f"objectives={{pair: all, triplet: [{BACKWARDS}], params: {{tau: 10.0, margin: 0.2}}}}"],
        ["precision=fp32", "data.min_word_count=1", "model.framework=vsepp"],
    ],
)
def test_what_does_not_make_the_model_leaves_ids_alone(
    write: Callable[..., Path], small: SweepConfig, overrides: list[str]
) -> None:
    assert keys_of(load_sweep("small.yaml", overrides)) == keys_of(small)


def test_adding_keeps_old_ids(small: SweepConfig, write: Callable[..., Path]) -> None:
    old = set(keys_of(small))
    more_seeds = set(keys_of(load_sweep("small.yaml", ["seeds=[2, 3, 1]"])))
    assert old < more_seeds
    fewer_objectives = keys_of(load_sweep("small.yaml", ["objectives.pair=[lin]"]))
    assert set(fewer_objectives) < old
    more_backbones = load_sweep(
        "small.yaml", ["model.backbones=[resnet50, resnet18, {name: resnet10t, weights: random}]"]
    )
    assert old < set(keys_of(more_backbones))
