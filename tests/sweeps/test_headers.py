"""The comment at the top of each GPU sweep says what its published number had, and truly what the sweep has."""

from __future__ import annotations

import re
from functools import cache

import pytest
import timm
import torch
from torch import nn

from goal_sweep.goal_core.data.config import KarpathyConfig, ScenesConfig
from goal_sweep.goal_core.objectives.weights import Value
from goal_sweep.sweeps import SweepConfig, find_sweep, list_shipped, load_sweep
from tests.helpers.planning_cases import rows_of

PLACES = {"GOAL_DATA": "/data", "GOAL_WEIGHTS": "/weights.safetensors"}
GPU_SWEEPS = [name for name in list_shipped() if load_sweep(name, environ=PLACES).resources.gpus]
ROW = re.compile(r"#   ([a-z][A-Za-z ]*): (.+) \| (.+)")


def header(name: str) -> str:
    """The comment lines before the first setting."""
    text = find_sweep(name).read_text()
    setting = re.search(r"^[^#\n]", text, re.MULTILINE)
    assert setting is not None
    return text[: setting.start()]


def compared(name: str) -> dict[str, tuple[str, str]]:
    """By fact what is published and what the sweep has, as the header says."""
    _, block = header(name).split("# Compared: published | this sweep\n")
    rows = re.sub(r"\n# {5,}", " ", block).splitlines()
    found = [ROW.fullmatch(row) for row in rows]
    assert all(found), [row for row, match in zip(rows, found, strict=True) if not match]
    return {match[1]: (match[2], match[3]) for match in found if match}


@cache
def normalises(backbone: str) -> bool:
    with torch.device("meta"):
        return any(isinstance(module, nn.BatchNorm2d) for module in timm.create_model(backbone).modules())


def batch_normalisation(config: SweepConfig) -> str:
    if config.data.format == "regions":
        return "in the MLP of the image head, statistics of the whole batch"
    if config.data.format == "precomp" or not normalises(config.model.backbones[0].name):
        return "none in the model"
    return ", ".join(f"{stage.name} bn_mode {stage.bn_mode}" for stage in config.stages)


def selected_on(config: SweepConfig) -> str:
    assert not isinstance(config.data, ScenesConfig)
    (split,) = {stage.select_on for stage in config.stages}
    return f"{split}, " + (f"its first {config.data.max_val_images:,} images" if config.data.max_val_images else "all")


def starts_from(config: SweepConfig) -> str:
    bert = [config.model.bert.weights] if config.model.framework != "vsepp" else []
    (backbone,) = config.model.backbones
    source = {"timm": backbone.name, "precomputed": "precomputed features"}[backbone.weights]
    return " and ".join([config.model.init_from] if config.model.init_from else [source, *bert])


def constants(config: SweepConfig) -> str:
    values: dict[str, Value] = {}
    for objective in config.objectives.configs:
        values |= {key: one for key, one in objective.resolved().items() if key not in ("pair", "triplet")}
    shown = {key: str(one).lower() if isinstance(one, bool | str) else f"{one:g}" for key, one in values.items()}
    return f"variant {config.objectives.variant}, " + ", ".join(f"{key} {shown[key]}" for key in sorted(shown))


def facts(config: SweepConfig) -> dict[str, str]:
    """What the header is to say of the sweep itself."""
    found = {
        "batch normalisation": batch_normalisation(config),
        "selected on": selected_on(config),
        "starts from": starts_from(config),
        "constants": constants(config),
    }
    if config.data.format == "karpathy":
        found["vocabulary"] = f"vocabulary {config.data.vocabulary}"
    if config.model.framework == "xvlm":
        xvlm = config.model.xvlm
        found["beside matching"] = f"objective_scale {xvlm.objective_scale}, objective_weight {xvlm.objective_weight:g}"
    return found


@pytest.mark.parametrize("name", GPU_SWEEPS)
def test_the_header_says_what_the_published_number_had_and_what_the_sweep_has(name: str) -> None:
    text, rows = header(name), compared(name)
    assert {fact: own for fact, (_, own) in rows.items()} == facts(load_sweep(name, environ=PLACES))
    assert "unknown until" not in text
    assert "goal-sweep plan" in text


@pytest.mark.parametrize("name", [name for name in GPU_SWEEPS if name != "precomp_vsepp"])
def test_the_memory_that_the_header_states_is_what_is_counted(name: str) -> None:
    stated = dict(re.findall(r"(frozen|finetune) (\d+) GB", re.sub(r"\n# +", " ", header(name))))
    rows = rows_of(name, "execution.cells_per_unit=1", environ=PLACES)
    counted = {row["stage"]: row["memory_mb"] for row in rows}
    assert stated.keys() == counted.keys()
    for stage, memory in counted.items():
        assert float(stated[stage]) == pytest.approx(memory / 1000, rel=0.1, abs=0.5)
        assert memory < 0.85 * 80_000


@pytest.mark.parametrize("name", ["coco_vsepp_quirk", "f30k_vsepp_quirk"])
def test_a_quirk_sweep_differs_from_its_base_in_the_quirks_alone(name: str) -> None:
    quirk, base = (load_sweep(one, environ=PLACES) for one in (name, name.removesuffix("_quirk")))
    assert {stage.bn_mode for stage in quirk.stages} == {"legacy_quirk"}
    assert isinstance(quirk.data, KarpathyConfig)
    assert quirk.data.vocabulary == "legacy"
    assert quirk.objectives.variant == "paper", "or con/con would not be the triplet loss"
    same = ["name=x", "objectives.only=[]", "data.vocabulary=train_val"]
    same += [f"stages.{stage.name}.bn_mode=frozen_eval" for stage in base.stages]
    assert load_sweep(name, same, environ=PLACES) == load_sweep(base.name, ["name=x"], environ=PLACES)
    assert quirk.objectives.only == ("con/con", "con/nca", "lin/cir", "sig/con", "sig-ms/con")
