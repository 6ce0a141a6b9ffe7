from __future__ import annotations

from dataclasses import MISSING, fields, replace
from typing import get_type_hints

import pytest

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.goal_core.models.config import BackboneConfig, ModelConfig
from goal_sweep.goal_core.objectives import pair_weights, triplet_weights
from goal_sweep.sweeps import (
    STAGE_ORDER,
    SweepConfig,
    SweepError,
    SweepModel,
    SweepObjectives,
    from_mapping,
    load_sweep,
    to_mapping,
)
from goal_sweep.sweeps.schema import ExecutionConfig, ResourceConfig
from tests.helpers.paths import SCENES

PAIRS, TRIPLETS = list(pair_weights), list(triplet_weights)


def test_model_settings_are_those_of_one_model() -> None:
    """`SweepModel` is `ModelConfig` with several backbones; nothing else may differ."""
    ours, theirs = ({item.name: item for item in fields(kind)} for kind in (SweepModel, ModelConfig))
    our_types, their_types = get_type_hints(SweepModel), get_type_hints(ModelConfig)
    assert ours.keys() - {"backbones"} == theirs.keys() - {"backbone"}
    for name in theirs.keys() - {"backbone"}:
        assert our_types[name] == their_types[name]
        assert ours[name].default == theirs[name].default
        if theirs[name].default is MISSING:
            assert ours[name].default_factory() == theirs[name].default_factory()  # type: ignore[operator]


def test_stage_order() -> None:
    assert STAGE_ORDER == ("frozen", "finetune")


def test_objectives_default_to_the_whole_table_row_by_row() -> None:
    objectives = SweepObjectives()
    assert objectives.names == tuple((pair, triplet) for pair in PAIRS for triplet in TRIPLETS)
    assert [config.name for config in objectives.configs[:3]] == ["con/con", "con/nca", "con/cir"]


def test_order_of_writing_does_not_matter() -> None:
    objectives = SweepObjectives(pair=("sig", "con"), triplet=("cir", "con"), only=("sig/cir", "con/con"))
    assert objectives.names == (("con", "con"), ("sig", "cir"))


def test_parameters_go_to_the_objectives_that_have_them() -> None:
    objectives = SweepObjectives(pair=("con", "sig"), triplet=("con", "nca"), params={"tau": 5.0, "alpha": 3.0})
    given = {config.name: config.params for config in objectives.configs}
    assert given == {"con/con": {}, "con/nca": {"tau": 5.0}, "sig/con": {"alpha": 3.0},
                     "sig/nca": {"tau": 5.0, "alpha": 3.0}}  # fmt: skip


def test_parameter_that_fits_nothing() -> None:
    with pytest.raises(ConfigError, match=r"params\.tua: no objective of this sweep.*did you mean 'tau'"):
        SweepObjectives(params={"tua": 5.0})
    with pytest.raises(
        ConfigError, match=r"params\.tau: no objective of this sweep has this parameter .*; known: margin"
    ):
        SweepObjectives(triplet=("con",), params={"tau": 5.0})


def test_parameter_out_of_range() -> None:
    with pytest.raises(ConfigError, match=r"params\.tau: tau must be above 0"):
        SweepObjectives(params={"tau": 0.0})


def test_variant_reaches_the_objectives() -> None:
    paper, released = SweepObjectives(only=("con/con",)), SweepObjectives(only=("con/con",), variant="released")
    assert paper.configs[0].resolved() != released.configs[0].resolved()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": ()}, "seeds: .*at least 1"),
        ({"seeds": (1, 1)}, "seeds: .*must be distinct"),
        ({"stages": ()}, "stages: .*at least 1"),
        ({"name": ""}, "name: .*pattern"),
        ({"store": ""}, "store: .*must not be empty"),
        ({"tracking": "http://u:p@h"}, "tracking: .*must not carry credentials"),
        ({"tracking": "http://[broken"}, "tracking: .*is not a valid URI"),
    ],
)
def test_single_settings_are_checked(small: SweepConfig, change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_mapping(SweepConfig, to_mapping(small) | change)


def test_stages_in_the_wrong_order(small: SweepConfig) -> None:
    with pytest.raises(ConfigError, match=r"stages: .*must be in the order frozen, finetune; got finetune, frozen"):
        from_mapping(SweepConfig, to_mapping(replace(small, stages=small.stages[::-1])))
    assert replace(small, stages=small.stages[1:]).stages[0].name == "finetune"


def test_the_names_of_objectives_are_checked() -> None:
    for key, value in (("pair", ["com"]), ("triplet", []), ("triplet", ["nca"] * 2), ("only", ["con/con"] * 2)):
        with pytest.raises(ConfigError, match=key):
            from_mapping(SweepObjectives, {key: value})
    with pytest.raises(ConfigError, match="none of lin/con is in the grid"):
        SweepObjectives(pair=("con",), only=("lin/con",))


def test_models_are_one_for_each_backbone() -> None:
    model = SweepModel(backbones=(BackboneConfig(name="a"), BackboneConfig(name="b")), embed_dim=8)
    assert [item.backbone.name for item in model.models] == ["a", "b"]
    assert {item.embed_dim for item in model.models} == {8}
    with pytest.raises(ConfigError, match=r"backbones: .*at least 1"):
        from_mapping(SweepModel, {"backbones": []})


@pytest.mark.parametrize(
    "wrong",
    [{"cpus": 0}, {"gpus": -1.0}, {"gpus": 2}, {"max_attempts": 0}, {"watchdog": -1}, {"accelerator": "A100"}],
)
def test_resources(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        ResourceConfig(**wrong)  # type: ignore[arg-type]
    assert ResourceConfig(gpus=0.25, accelerator="A100").accelerator == "A100"


def test_limit_without_sharing() -> None:
    with pytest.raises(ConfigError, match="needs another sharing than none"):
        ExecutionConfig(sharing="none", cells_per_unit=4)
    assert ExecutionConfig(sharing="none", cells_per_unit=1).cells_per_unit == 1


def test_stacked_heads_are_refused_where_they_cannot_be(small: SweepConfig) -> None:
    heads = ExecutionConfig(sharing="heads")
    assert replace(small, execution=heads).execution.sharing == "heads"
    frozen, finetune = small.stages
    for changes, needed in (
        ({"precision": "fp16"}, "heads needs precision fp32, tf32 or bf16, got fp16"),
        ({"stages": (replace(frozen, bn_mode="legacy_quirk"), finetune)}, "heads needs a stage frozen"),
        ({"model": replace(small.model, framework="xvlm")}, "heads needs framework .*, got xvlm"),
        ({"stages": (replace(frozen, micro_batch=4), finetune)}, "heads needs a stage frozen .* without micro_batch"),
    ):
        with pytest.raises(ConfigError, match=f"execution.sharing: {needed}"):
            replace(small, execution=heads, **changes)
        replace(small, execution=ExecutionConfig(sharing="auto"), **changes)


def test_batches_whose_statistics_count_are_not_split() -> None:
    with pytest.raises(SweepError, match=r"micro_batch: 32 cannot split the batches of vse_infty on precomputed"):
        load_sweep("f30k_vse_infty_butd", ["stages.frozen.micro_batch=32"], environ={})
    assert load_sweep("coco_vsepp", ["stages.frozen.micro_batch=32"], environ={}).stages[0].micro_batch == 32


def test_the_legacy_normalisation_is_vsepps_alone() -> None:
    with pytest.raises(SweepError, match=r"vsepp.*legacy_quirk|legacy_quirk.*vsepp"):
        load_sweep("coco_vse_infty_wsl", ["stages.finetune.bn_mode=legacy_quirk"], environ={})


def test_feature_views_need_augmented_images() -> None:
    with pytest.raises(SweepError, match="do not augment them"):
        load_sweep(SCENES, ["stages.frozen.feature_views=2"])
    with pytest.raises(SweepError, match="have no images"):
        load_sweep("quickstart", ["stages.frozen.feature_views=2"])
