from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.goal_core.data.config import DataConfig, ImageConfig, KarpathyConfig, ScenesConfig
from goal_sweep.goal_core.models.config import BackboneConfig, TextConfig
from goal_sweep.goal_core.objectives import pair_weights, triplet_weights
from goal_sweep.goal_core.training.config import StageConfig
from goal_sweep.sweeps import Cell, ResolvedSweep, SweepConfig, SweepModel, SweepObjectives
from goal_sweep.sweeps.identity import from_mapping, to_mapping
from goal_sweep.sweeps.schema import ExecutionConfig, ResourceConfig

positive = st.integers(1, 10**6)
rates = st.floats(1e-9, 10, allow_nan=False)
words = st.text("abcXYZ 019_./'\"#:é", min_size=1, max_size=12)
images = st.integers(8, 500).flatmap(
    lambda size: st.builds(
        ImageConfig, size=st.just(size), resize=st.integers(size, 600), augment=st.sampled_from(["none", "crop_flip"])
    )
)
data: st.SearchStrategy[DataConfig] = st.one_of(
    st.builds(ScenesConfig, name=words, num_train=positive, data_seed=st.integers(), image=images),
    st.builds(KarpathyConfig, name=words, root=words, annotations=words, max_captions=positive, image=images),
)
backbones = st.lists(st.builds(BackboneConfig, name=words, weights=words), min_size=1, unique_by=lambda item: item.name)
models = st.builds(
    SweepModel, backbones=backbones.map(tuple), text=st.builds(TextConfig, word_dim=positive), embed_dim=positive
)
objectives = st.builds(
    SweepObjectives,
    pair=st.lists(st.sampled_from(list(pair_weights)), min_size=1, unique=True).map(tuple),
    triplet=st.just(tuple(triplet_weights)),
    variant=st.sampled_from(["paper", "released"]),
    params=st.fixed_dictionaries({}, optional={"tau": rates, "margin": rates, "gate": st.booleans()}),
)


def stage(name: str) -> st.SearchStrategy[StageConfig]:
    return st.builds(
        StageConfig,
        name=st.just(name),
        epochs=st.just(50),
        lr=rates,
        lr_drops=st.lists(st.integers(1, 49)).map(tuple),
        drop_last=st.booleans(),
    )


configs = st.builds(
    SweepConfig,
    name=st.from_regex(r"[a-z0-9_-][a-z0-9_.-]{0,19}", fullmatch=True),
    data=data,
    model=models,
    objectives=objectives,
    seeds=st.lists(st.integers(0, 2**63 - 1), min_size=1, unique=True).map(tuple),
    stages=st.one_of(
        st.tuples(stage("frozen")), st.tuples(stage("finetune")), st.tuples(stage("frozen"), stage("finetune"))
    ),
    precision=st.sampled_from(["fp32", "bf16", "fp16"]),
    execution=st.builds(ExecutionConfig, sharing=st.just("trunk"), cells_per_unit=st.integers(0, 99)),
    resources=st.builds(ResourceConfig, gpus=st.floats(0, 1), watchdog=positive),
    store=st.sampled_from(["/a/b c", "./x"]),
)


@given(configs)
@settings(max_examples=40, deadline=None)
def test_sweep_survives_json(config: SweepConfig) -> None:
    assert from_mapping(SweepConfig, json.loads(json.dumps(to_mapping(config)))) == config


@given(configs)
@settings(max_examples=40, deadline=None)
def test_cell_survives_json(config: SweepConfig) -> None:
    weights = {backbone.name: "random" for backbone in config.model.backbones}
    cell = ResolvedSweep(config=replace(config, seeds=config.seeds[:1]), data_fingerprint="f", weights=weights).cells[0]
    assert from_mapping(Cell, json.loads(json.dumps(to_mapping(cell)))) == cell


def test_every_default_is_written_out(small: SweepConfig) -> None:
    mapping = to_mapping(small)
    assert list(mapping) == [
        *("name", "store", "tracking", "plugins", "data", "model", "objectives", "seeds", "stages", "precision"),
        *("execution", "resources", "tune", "axes"),
    ]
    assert mapping["stages"][0]["grad_clip"] == 2.0
    assert mapping["objectives"]["pair"] == list(pair_weights)
    assert mapping["data"]["image"] == {
        "size": 64,
        "resize": 64,
        "augment": "none",
        "shrink": 0,
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": "3"}, "not a valid stored SweepConfig: seeds: "),
        ({"colour": 1}, "not a valid stored SweepConfig: colour: "),
        ({"seeds": [1, 1]}, "seeds: .*must be distinct"),
    ],
)
def test_damaged_mapping(small: SweepConfig, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_mapping(SweepConfig, {**to_mapping(small), **change})
