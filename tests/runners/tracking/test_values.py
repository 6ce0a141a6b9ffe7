"""What a run shows follows from the row of its training, and from nothing that its key ignores."""

from dataclasses import replace
from typing import Any

import pytest

from goal_sweep.goal_core.data.config import (
    IdMappedConfig,
    KarpathyConfig,
    PrecompConfig,
    RegionsConfig,
    XvlmJsonConfig,
)
from goal_sweep.goal_core.models.config import BackboneConfig, ModelConfig
from goal_sweep.runners.results import asked_row
from goal_sweep.runners.tracking.experiment import epochs_of, final_of, params_of, tags_of
from goal_sweep.sweeps import ResolvedSweep, SweepConfig, Training, load_sweep
from tests.helpers.mlflow_cases import TRAINING
from tests.helpers.results_cases import SweepWriter, of_epochs

REGIONS = ModelConfig(framework="vse_infty", backbone=BackboneConfig(name="butd", weights="precomputed"))


def resolved(config: SweepConfig, weights: str = "timm") -> ResolvedSweep:
    weights_of = {backbone.name: weights for backbone in config.model.backbones}
    return ResolvedSweep(config=config, data_fingerprint="f", weights=weights_of)


def params(training: Training) -> dict[str, str]:
    return params_of(asked_row(training))


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
def test_what_no_id_hashes_is_in_no_parameter_either(data: Any, moved: dict[str, Any]) -> None:
    """The data fingerprint covers these settings, and a renamed folder must not separate equal runs."""
    files = [BackboneConfig(name="resnet50", weights=f"/{folder}/w.safetensors") for folder in "ab"]
    models = [REGIONS] * 2 if isinstance(data, RegionsConfig) else [ModelConfig(backbone=file) for file in files]
    here, there = (
        params(replace(TRAINING, cell=replace(TRAINING.cell, data=where, model=model)))
        for where, model in zip((data, replace(data, **moved)), models, strict=True)
    )
    assert here == there
    assert here["model.backbone"] == models[0].backbone.name
    assert {name for name, value in here.items() if "/" in value} == {"objective"}


def test_a_run_shows_only_settings_that_its_framework_reads() -> None:
    vsepp = resolved(load_sweep("coco_vsepp", environ={})).by_stage[-1][0]
    infty = replace(vsepp, cell=replace(vsepp.cell, model=REGIONS))
    groups = {
        name: {key.split(".")[1] for key in params(one) if key.startswith("model.")}
        for name, one in (("vsepp", vsepp), ("vse_infty", infty))
    }
    common = {"framework", "backbone", "backbone_weights", "embed_dim"}
    assert groups == {"vsepp": common | {"text"}, "vse_infty": common | {"bert", "vse_infty"}}
    assert not [key for key in params(vsepp) if key.endswith("bert_lr_scale")]
    assert "stages.frozen.bert_lr_scale" in params(infty)


def test_a_row_becomes_tags_and_metrics_and_what_is_not_finite_is_left_out() -> None:
    writer = SweepWriter(objectives=["con/con"], seeds=[1])
    epochs = of_epochs(2) | {"epochs/train/hinge": [float("nan"), 0.5]}
    row = writer.write(git_diff="ab12", epochs=epochs, metrics={"test/rsum": 42.0, "val/rsum": 302.0})
    tags = tags_of(row)
    assert tags["goal.git_commit"] == f"{'0' * 40}, modified (ab12)"
    assert params_of(row)["objective"] == "con/con"
    assert not {"goal.reason", "goal.grid", "goal.configuration"} & tags.keys()
    first, second = epochs_of(row)
    assert (first.step, first.metrics, first.time_ms) == (1, {"val/rsum": 301.0}, 1_700_000_001_000)
    assert second.metrics == {"val/rsum": 302.0, "train/hinge": 0.5}
    final = final_of(row)
    assert (final.step, final.metrics) == (2, {"test/rsum": 42.0, "selected/val_rsum": 302.0})
