"""The examples of docs/plugins.md, word for word."""

import json
import re
from pathlib import Path

import pytest

from goal_sweep.goal_core.basics.registry import Plugin
from goal_sweep.goal_core.data.config import KarpathyConfig
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.data.text import Vocabulary
from goal_sweep.goal_core.models.frameworks import framework_of
from goal_sweep.runners.launch.opened import open_sweep
from goal_sweep.sweeps import SweepError, load_sweep
from goal_sweep.testing import check_importer, check_training
from tests.helpers.in_process import SWEEP
from tests.helpers.karpathy_fixture import write_dataset

PAGE = (Path(__file__).parents[1] / "docs" / "plugins.md").read_text()
pytestmark = pytest.mark.usefixtures("without_plugins")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


def test_the_weight_is_tried_and_its_cells_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "square.py").write_text(blocks("python")[0])
    (tmp_path / "square.yaml").write_text(blocks("yaml")[0])
    sweep = open_sweep(load_sweep("square.yaml"))
    sweep.check_trainable()
    assert [one.cell.objective.name for one in sweep.trainings] == ["con/con", "con/cir", "square/con", "square/cir"]
    assert sweep.trainings[-1].cell.objective.resolved()["power"] == 3.0


@pytest.mark.parametrize("framework", ["vsepp", "vse_infty"])
def test_the_backbone_builds_in_every_framework_that_takes_pictures(framework: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "convs.py").write_text(blocks("python")[1])
    own = ["plugins=[convs.py]", "model.backbones=[{name: two_convs, weights: random}]", f"model.framework={framework}"]
    text = SWEEP
    if framework == "vse_infty":
        text = text.replace("text: {word_dim: 8}", "bert: {weights: random, layers: 1, width: 32, heads: 2}")
    (tmp_path / "own.yaml").write_text(text)
    sweep = open_sweep(load_sweep("own.yaml", own))
    sweep.check_trainable()
    assert all("plugin:" in weights for weights in sweep.weights.values())


def lines_of(data: Path) -> Path:
    """The same images and captions in the layout that the page's importer reads."""
    images = json.loads((data / "dataset_tiny.json").read_text())["images"]
    rows = [
        {"file": f"{one['filepath']}/{one['filename']}", "says": said["raw"], "part": one["split"]}
        for one in images
        for said in one["sentences"]
    ]
    (data / "photos.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return data / "photos.jsonl"


def test_the_importer_reads_the_same_data_and_an_edit_reads_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    ours = open_dataset(KarpathyConfig(name="tiny", root=str(write_dataset(tmp_path / "data")), min_word_count=1))
    lines = lines_of(tmp_path / "data")
    text = next(one for one in blocks("python") if "importers.register" in one)
    (tmp_path / "lines.py").write_text(text)
    data = f"data={{format: source, importer: json_lines, name: tiny, root: {lines}, min_word_count: 1}}"
    (tmp_path / "own.yaml").write_text(SWEEP)
    own = ["plugins=[lines.py]", data, "stages.frozen.batch_size=8"]
    sweep = open_sweep(load_sweep("own.yaml", own))
    assert sweep.data_fingerprint == ours.fingerprint
    assert open_sweep(load_sweep("own.yaml", own), renew=False).data_fingerprint == ours.fingerprint  # runs no plugin
    check_importer("json_lines", lines)
    (tmp_path / "lines.py").write_text(text.replace('[item["says"]]', '[item["says"] + "!"]'))
    edited = open_sweep(load_sweep("own.yaml", own))
    assert edited.data_fingerprint != ours.fingerprint
    assert {one.key for one in edited.trainings}.isdisjoint(one.key for one in sweep.trainings)
    (tmp_path / "lines.py").write_text(f"{text}# a remark\n")
    assert [one.key for one in open_sweep(load_sweep("own.yaml", own)).trainings] == [
        one.key for one in sweep.trainings
    ]


@pytest.mark.parametrize("framework", ["vsepp", "vse_infty", "deep"])
def test_the_text_encoder_and_the_framework_build_and_are_in_the_ids(framework: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.py").write_text(blocks("python")[2])
    (tmp_path / "deep.py").write_text(blocks("python")[3])
    text = SWEEP.replace("text: {word_dim: 8}", "text: {encoder: convolved_words}")
    if framework == "vse_infty":
        text = SWEEP.replace("text: {word_dim: 8}", "bert: {weights: convolved_words}")
    (tmp_path / "own.yaml").write_text(text)
    own = ["plugins=[words.py, deep.py]", f"model.framework={framework}"]
    sweep = open_sweep(load_sweep("own.yaml", own))
    sweep.check_trainable()
    (weights,) = sweep.weights.values()
    assert "convolved_words plugin:" in weights
    assert ("framework plugin:" in weights) == (framework == "deep")
    edited = tmp_path / ("deep.py" if framework == "deep" else "words.py")
    edited.write_text((text_before := edited.read_text()) + "# edited")
    assert not {one.key for one in open_sweep(load_sweep("own.yaml", own)).trainings} & {
        one.key for one in sweep.trainings
    }
    edited.write_text(text_before)
    wide = [*own, "model.options={width: 256}"]
    if framework != "deep":
        with pytest.raises(SweepError, match=r"model\.options: framework .* has no such part"):
            open_sweep(load_sweep("own.yaml", wide))
        return
    other = open_sweep(load_sweep("own.yaml", wide))
    other.check_trainable()
    assert not {one.key for one in other.trainings} & {one.key for one in sweep.trainings}
    assert other.trainings[0].settings["model.options.width"] == "256"
    heads = framework_of(other.trainings[0].cell.model).heads(
        other.trainings[0].cell.model, num_features=8, tokenizer=Vocabulary.build(["a"], 1), seed=1
    )
    assert heads.state_dict()["layers.0.weight"].shape == (256, 8)


def test_a_training_with_them_keeps_its_bits(tmp_path: Path) -> None:
    for number, name in ((2, "words.py"), (3, "deep.py")):
        Plugin(name=name, text=blocks("python")[number]).run()
    check_training(tmp_path, text="convolved_words", framework="deep")
