"""Cells that begin with a checkpoint: its weights, its words, and one clear line where it does not fit."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from goal_sweep.goal_core.basics.atomic import DamagedError
from goal_sweep.goal_core.basics.errors import WeightsError
from goal_sweep.goal_core.checkpoints import weights_in
from goal_sweep.goal_core.checkpoints.file import read_checkpoint, read_model, write_checkpoint
from goal_sweep.goal_core.checkpoints.initial_model import InitialModel, check_initial_weights
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.evaluation.evaluate import open_checkpoint
from goal_sweep.goal_core.models import BackboneConfig, TextConfig
from goal_sweep.goal_core.models.frameworks import initial_weights_id
from goal_sweep.goal_core.training import StageConfig, TrainingDone
from goal_sweep.goal_core.training.train import train_unit
from tests.helpers.training_cases import DATA, FROZEN, MODEL, folders_of, trained_cell, unit_of

TINY = replace(FROZEN, epochs=1, warmup_epochs=0, lr_drops=())


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another seed's cell on other drawings, and so with other words."""
    return weights_in(trained_cell(tmp_path_factory.mktemp("start"), seed=5, data=replace(DATA, num_train=20)))


def test_every_weight_and_the_words_come_from_the_checkpoint(start: Path) -> None:
    initial = InitialModel(replace(MODEL, init_from=str(start)), DATA, open_dataset(DATA))
    backbone = initial.backbone(seed=1)
    assert backbone is not None
    stored = load_file(start)
    own = {f"backbone.{k}": v for k, v in backbone.state_dict().items()}
    own |= {f"heads.{k}": v for k, v in initial.heads(backbone, seed=1).state_dict().items()}
    assert own.keys() == stored.keys()
    assert all(torch.equal(own[key], stored[key]) for key in own)
    assert initial.tokenizer == read_model(start).description.vocabulary
    assert initial.tokenizer != InitialModel(MODEL, DATA, open_dataset(DATA)).tokenizer


@pytest.mark.parametrize("stage", [TINY, replace(TINY, name="finetune")], ids=lambda stage: stage.name)
def test_cells_train_from_it_and_evaluate(start: Path, tmp_path: Path, stage: StageConfig) -> None:
    unit = unit_of("con/con", model=replace(MODEL, init_from=str(start)), stage=replace(stage, lr=1e-12))
    folder = folders_of(unit, tmp_path)["con-con"]
    outcome = train_unit(unit, {"con-con": folder})[0]
    assert isinstance(outcome, TrainingDone)
    assert outcome.result["status"] == "done"
    ours, theirs = load_file(folder.best()), load_file(start)
    assert ours.keys() == theirs.keys()
    assert all(torch.allclose(ours[key], theirs[key], atol=1e-6) for key in ours)
    again = open_checkpoint(folder.best()).evaluate()
    assert again["metrics"]["test/rsum"] == pytest.approx(outcome.result["metrics"]["test/rsum"])


def test_id_goes_by_content_and_not_by_place(start: Path, tmp_path: Path) -> None:
    begun = initial_weights_id(replace(MODEL, init_from=str(start)))
    assert initial_weights_id(MODEL) == "random"
    assert begun != "random"
    copy = tmp_path / "copy.safetensors"
    shutil.copy(start, copy)
    elsewhere = replace(MODEL, init_from=str(copy))
    assert initial_weights_id(elsewhere) == begun
    tensors, state = read_checkpoint(start)
    tensors["heads.image.fc.bias"] = tensors["heads.image.fc.bias"] + 1
    write_checkpoint(copy, tensors, state)
    assert initial_weights_id(elsewhere) != begun


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"embed_dim": 32}, r"image\.fc\.bias is \(16,\), not \(32,\)"),
        ({"text": TextConfig(word_dim=9)}, r"text\.embed\.weight is \(\d+, 8\), not \(\d+, 9\)"),
        ({"backbone": BackboneConfig(name="test_vit", weights="random")}, "its backbone is test_resnet, not test_vit"),
        ({"framework": "vse_infty"}, "its framework is vsepp, not vse_infty"),
    ],
)
def test_another_model_is_one_clear_line(start: Path, changes: dict[str, Any], message: str) -> None:
    model = replace(MODEL, init_from=str(start), **changes)
    with pytest.raises(WeightsError, match=message) as caught:
        check_initial_weights(model, DATA, open_dataset(DATA))
    assert "\n" not in str(caught.value)


def test_a_vocabulary_or_a_file_that_does_not_fit_is_one_clear_line(start: Path, tmp_path: Path) -> None:
    def refused(path: Path, message: str, kind: type[Exception] = WeightsError) -> None:
        with pytest.raises(kind, match=message) as caught:
            check_initial_weights(replace(MODEL, init_from=str(path)), DATA, open_dataset(DATA))
        assert "\n" not in str(caught.value)

    refused(tmp_path / "none.safetensors", "no checkpoint .*none.safetensors")
    tensors, state = read_checkpoint(start)
    rows = tensors["heads.text.embed.weight"]
    other = tmp_path / "other.safetensors"
    write_checkpoint(other, tensors | {"heads.text.embed.weight": rows[:-2]}, state)
    refused(other, rf"text.embed.weight is \({len(rows) - 2}, 8\), not \({len(rows)}, 8\)")
    write_checkpoint(other, tensors, {"epoch": 1})
    refused(other, "is not a model checkpoint; give a best-.*safetensors")
    other.write_bytes(start.read_bytes()[:5000])
    refused(other, "checkpoint .* is damaged", DamagedError)
