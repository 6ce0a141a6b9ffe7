from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import sweeps
from goal_core.models.config import BackboneConfig
from sweeps import ResolvedSweep, SweepNotFoundError, expand, find_sweep, list_shipped, load_sweep

Write = Callable[..., Path]
ENVIRON = {"GOAL_DATA": "/data/emoji", "GOAL_WEIGHTS": "/weights/lite0.safetensors"}


def test_names() -> None:
    assert {"quickstart", "emoji_vsepp", "emoji_vsepp_finetune"} <= set(list_shipped())
    assert list_shipped() == sorted(list_shipped())


@pytest.mark.parametrize("name", list_shipped())
def test_shipped_sweep_is_valid_and_called_like_its_file(name: str) -> None:
    config = load_sweep(name, environ=ENVIRON)
    assert config.name == name
    assert config == load_sweep(f"{name}.yaml", environ=ENVIRON)


@pytest.mark.parametrize("name", list_shipped())
def test_shipped_sweep_opens_with_its_command_data_cost_and_result(name: str) -> None:
    text = find_sweep(name).read_text()
    head = text[: re.search(r"^[^#\n]", text, re.MULTILINE).start()]  # type: ignore[union-attr]  # all have keys
    assert f"goal-sweep launch {name}.yaml" in head
    for word in ("Data:", "Cost:", "Expected:"):
        assert word in head


def test_an_existing_file_wins(write: Write) -> None:
    path = write("quickstart.yaml")
    assert load_sweep("quickstart.yaml").name == "small"
    assert load_sweep(path.absolute()).name == "small"
    assert load_sweep("quickstart").name == "quickstart"


@pytest.mark.parametrize("name", ["nothing.yaml", "some/where/quickstart.yaml", "quickstart.json"])
def test_not_found_lists_what_ships(write: Write, name: str) -> None:
    write()
    with pytest.raises(SweepNotFoundError, match=f"shipped sweeps: {', '.join(list_shipped())}$"):
        find_sweep(name)


def test_folder_is_named_as_one(tmp_path: Path) -> None:
    with pytest.raises(SweepNotFoundError, match="is a folder"):
        find_sweep(tmp_path)


def test_quickstart_is_the_whole_grid_in_both_stages() -> None:
    config = load_sweep("quickstart")
    cells = expand(config, "0", {"resnet10t": "random"} | {item.name: "random" for item in config.model.backbones})
    assert len(cells) == 15 * 3 * len(config.model.backbones)
    assert [stage.name for stage in config.stages] == ["frozen", "finetune"]
    assert {item.weights for item in config.model.backbones} == {"random"}
    assert config.execution.sharing == "trunk"


def test_emoji_finetune_reuses_the_frozen_results_of_emoji() -> None:
    weights = {"tf_efficientnet_lite0": "sha256:0"}
    emoji, finetune = (
        ResolvedSweep(config=load_sweep(name, environ=ENVIRON), data_fingerprint="0", weights=weights)
        for name in ("emoji_vsepp", "emoji_vsepp_finetune")
    )
    assert [cell.objective.name for cell in finetune.cells] == ["con/con", "lin-ms/nca", "sig-ms/cir"]
    assert [trainings[0].stage.name for trainings in finetune.by_stage] == ["frozen", "finetune"]
    assert set(finetune.by_stage[0]) < set(emoji.trainings)
    assert load_sweep("emoji_vsepp", environ=ENVIRON).model.backbones == (
        BackboneConfig(name="tf_efficientnet_lite0", weights="/weights/lite0.safetensors"),
    )


def test_sweep_files_are_packaged_beside_the_code() -> None:
    assert find_sweep("quickstart").parent == Path(sweeps.__file__).parent
