"""Keys must still identify the runs of earlier versions, so a setting added later must not change them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from goal_core.data.config import IdMappedConfig, KarpathyConfig, PrecompConfig, RegionsConfig, XvlmJsonConfig
from goal_core.models.config import BackboneConfig, ModelConfig
from runners.tracking.values import settings_key, training_params
from sweeps import ResolvedSweep, SweepConfig, load_sweep
from tests.helpers.mlflow_cases import TRAINING


def resolved(config: SweepConfig, weights: str = "timm") -> ResolvedSweep:
    weights_of = {backbone.name: weights for backbone in config.model.backbones}
    return ResolvedSweep(config=config, data_fingerprint="f", weights=weights_of)


def test_the_split_that_selects_is_a_setting_of_the_run() -> None:
    config = load_sweep("scenes", environ={})
    changed = replace(config, stages=(replace(config.stages[0], select_on="test"), *config.stages[1:]))
    for sweep, said in ((config, "val"), (changed, "test")):
        for trainings in resolved(sweep, "random").by_stage:  # finetuning starts from what the first stage selected
            assert training_params(trainings[0])["stages.frozen.select_on"] == said


REGIONS = ModelConfig(framework="vse_infty", backbone=BackboneConfig(name="butd", weights="precomputed"))


@pytest.mark.parametrize(
    ("data", "moved"),
    [
        (KarpathyConfig(name="a", root="/a"), {"name": "b", "root": "/b", "annotations": "x.json"}),
        (RegionsConfig(name="a", root="/a"), {"name": "b", "root": "/b", "test_file": "testall"}),
        (PrecompConfig(name="a", root="/a"), {"name": "b", "root": "/b", "test_file": "testall"}),
        (IdMappedConfig(name="a", root="/a"), {"name": "b", "root": "/b", "test_file": "testall"}),
        (
            XvlmJsonConfig(name="a", root="/a", train_files=("t.json",), val_file="v.json", test_file="x.json"),
            {"image_root": "pictures", "train_files": ("u.json",), "val_file": "w.json", "test_file": "y.json"},
        ),
    ],
)
def test_what_no_id_hashes_is_in_no_key_and_no_parameter_either(data, moved) -> None:
    """The data fingerprint covers these settings, and a renamed folder must not separate equal runs."""
    config = load_sweep("coco_vsepp", environ={})
    first = resolved(config).trainings[0]
    model = REGIONS if isinstance(data, RegionsConfig) else first.cell.model
    here, there = (
        replace(first, cell=replace(first.cell, data=d, model=model)) for d in (data, replace(data, **moved))
    )
    assert settings_key(here) == settings_key(there)
    assert training_params(here) == training_params(there)


def test_params_do_not_depend_on_what_the_cells_id_ignores():
    data = {"name": "coco", "root": "/a", "annotations": "x.json"}
    elsewhere = {"name": "mine", "root": "/b", "annotations": "y.json"}
    cells = (
        replace(TRAINING.cell, data=KarpathyConfig(**where), model=ModelConfig(backbone=backbone))
        for where, backbone in (
            (data, BackboneConfig(name="resnet50", weights="/a/w.safetensors")),
            (elsewhere, BackboneConfig(name="resnet50", weights="/b/w.safetensors")),
        )
    )
    one, two = (training_params(replace(TRAINING, cell=cell)) for cell in cells)
    assert one == two
    assert one["model.backbone"] == "resnet50"
    assert one["seed"] == "1"
    assert one["objective.pair"] == "con"
    assert one["data.image.size"] == "224"
    assert not [value for value in one.values() if "/" in value]


def test_a_run_shows_only_settings_that_its_framework_reads() -> None:
    config = load_sweep("coco_vsepp", environ={})
    vsepp = resolved(config).by_stage[-1][0]
    infty = replace(vsepp, cell=replace(vsepp.cell, model=REGIONS))
    groups = {
        name: {key.split(".")[1] for key in training_params(one) if key.startswith("model.")}
        for name, one in (("vsepp", vsepp), ("vse_infty", infty))
    }
    common = {"framework", "backbone", "backbone_weights", "embed_dim"}
    assert groups == {"vsepp": common | {"text"}, "vse_infty": common | {"bert", "vse_infty"}}
    assert not [key for key in training_params(vsepp) if key.endswith("bert_lr_scale")]
    assert "stages.frozen.bert_lr_scale" in training_params(infty)
