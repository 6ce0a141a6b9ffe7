from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from goal_core.objectives import pair_weights, triplet_weights
from sweeps import load_sweep

Write = Callable[..., Path]
Errors = Callable[..., list[str]]


def test_values_are_yaml(write: Write) -> None:
    config = load_sweep(
        write(),
        [
            "seeds=[7, 8]",
            "stages.frozen.epochs=5",
            "stages.1.lr=2e-5",
            "stages.finetune.lr_drops=[1]",
            "seeds.0=9",
            "execution.sharing=trunk",
            "data={format: scenes, num_val: 3}",
            "store=./a=b",
        ],
    )
    assert config.seeds == (9, 8)
    assert config.stages[0].epochs == 5
    assert config.stages[1].lr == 2e-5
    assert config.stages[1].lr_drops == (1,)
    assert config.execution.sharing == "trunk"
    assert (config.data.name, config.data.num_val, config.data.num_train) == ("scenes", 3, 1000)  # type: ignore[union-attr]
    assert config.store.endswith("/a=b")


def test_later_ones_win(write: Write) -> None:
    assert load_sweep(write(), ["name=a", "name=b"]).name == "b"


def test_backbones_by_name(write: Write, small_text: str) -> None:
    path = write("a.yaml", small_text.replace("resnet18]", "resnet50.a1_in1k, resnet50]"))
    config = load_sweep(path, ["model.backbones.resnet50.a1_in1k.weights=random"])
    assert [backbone.weights for backbone in config.model.backbones] == ["random", "random", "timm"]
    config = load_sweep(path, ["model.backbones=[resnet34]"])
    assert [backbone.name for backbone in config.model.backbones] == ["resnet34"]


def test_all_objectives(write: Write) -> None:
    config = load_sweep(write(), ["objectives.pair=[con]", "objectives.pair=all"])
    assert len(config.objectives.names) == len(pair_weights) * len(triplet_weights)


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("seeds", "--set seeds: write key=value"),
        ("=3", "--set =: write key=value"),
        ("a..b=3", "--set a..b=: write key=value"),
        (
            "stages.froze.lr=1",
            "--set stages.froze.lr: stages has no item 'froze' (did you mean 'frozen'?); it has frozen, finetune",
        ),
        ("stages.2.lr=1", "--set stages.2.lr: stages has no item '2'; it has frozen, finetune"),
        ("seeds.5=1", "--set seeds.5: seeds has no item '5'; it has 0, 1"),
        ("name.x=1", "--set name.x: name holds one value, there is nothing below it"),
        ("extends=quickstart", "--set extends: a file alone can extend another; give that file to the command instead"),
        ("seeds=[1, 2", "--set seeds: not valid YAML: expected ',' or ']', but got '<stream end>'"),
        ("data={a: 1, a: 2}", "--set data: a: duplicate key, first given at --set data"),
        (
            "stages.frozen.epochs=two",
            "--set stages.frozen.epochs: stages.frozen.epochs: must be a whole number, got the text 'two'",
        ),
        (
            "stages.frozen.epochs=",
            "--set stages.frozen.epochs: stages.frozen.epochs: must be a whole number, got nothing",
        ),
        (
            "stages.frozen.epochs=0",
            "--set stages.frozen.epochs: stages.frozen.epochs: epochs must be at least 1, got 0",
        ),
        ("seeds=[1, 1]", "--set seeds: seeds: seeds must differ from each other, got 1 more than once"),
    ],
)
def test_mistakes_name_the_set(write: Write, errors_of: Errors, override: str, line: str) -> None:
    assert errors_of(write(), override) == [line]


def test_unknown_path_names_the_set_and_the_nearest_key(write: Write, errors_of: Errors) -> None:
    (line,) = errors_of(write(), "excution.sharing=trunk")
    assert line.startswith("--set excution.sharing: excution: unknown key (did you mean 'execution'?)")
    (line,) = errors_of(write(), "stages.frozen.epoch=2")
    assert line.startswith("--set stages.frozen.epoch: stages.frozen.epoch: unknown key (did you mean 'epochs'?)")


def test_secret_is_not_repeated(write: Write, errors_of: Errors) -> None:
    (line,) = errors_of(write(), "tracking=http://me:hunter2@host")
    assert line.startswith("--set tracking: tracking: tracking must not carry credentials")
    assert "hunter2" not in line


def test_mistakes_of_file_and_sets_together(write: Write, errors_of: Errors, small_text: str) -> None:
    lines = errors_of(write("a.yaml", small_text + "precision: x\n"), "seeds=x", "stages.a.b=1")
    assert [line.split(": ")[0] for line in lines] == ["a.yaml:16", "--set stages.a.b", "--set seeds"]
