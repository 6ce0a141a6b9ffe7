"""Keys by which runs of earlier versions are still known: a setting that was added since must not move them."""

from __future__ import annotations

from dataclasses import replace

from runners.tracking.values import cell_params, settings_key
from sweeps import expand, load_sweep


def test_the_keys_of_a_published_sweep_stay_what_they_were() -> None:
    config = load_sweep("coco_vsepp", environ={})
    cell = expand(config, "f", {backbone.name: "timm" for backbone in config.model.backbones})[0]
    assert [settings_key(cell, stage, {}) for stage in cell.stages] == ["093e5cc816fd91db", "3bd5400b419f1e87"]


def test_selection_on_test_is_a_setting_of_the_run_and_on_val_is_unsaid() -> None:
    config = load_sweep("quickstart", environ={})
    changed = replace(config, stages=(replace(config.stages[0], select_on="test"), *config.stages[1:]))
    for sweep, said in ((config, None), (changed, "test")):
        cell = expand(sweep, "f", {"test_byobnet": "random"})[0]
        for stage in cell.stages:  # finetuning starts from what the first stage selected
            assert cell_params(cell, stage, {}).get("stages.frozen.select_on") == said
