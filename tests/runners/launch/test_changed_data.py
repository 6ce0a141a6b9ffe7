"""Images that change while a sweep trains: nothing is trained with them, nothing is charged, and no result is lost."""

import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from goal_sweep.runners.cli.app import run
from goal_sweep.runners.launch.opened import OpenedSweep, open_sweep
from goal_sweep.sweeps import load_sweep
from tests.helpers.disturbed import SWEEP, calm_results, disturbed, swap, sweep_in
from tests.helpers.in_process import counted, launch, results
from tests.helpers.karpathy_fixture import write_dataset
from tests.helpers.vector_files import write_vectors

OF_VECTORS = "model: {backbones: [{name: vgg19, weights: precomputed}], text: {word_dim: 8}, embed_dim: 16}"
ONE_STAGE = "stages=[{name: frozen, epochs: 2, lr: 1e-3, batch_size: 8}]"


@pytest.mark.exhaustive
@pytest.mark.parametrize("moment", ["frozen begins", "finetune begins", "finetune epoch 1"])
@pytest.mark.parametrize("augment", ["none", "crop_flip"])
def test_nothing_is_trained_on_images_that_were_exchanged(tmp_path: Path, monkeypatch, moment: str, augment: str):
    expected = calm_results(augment, lambda: sweep_in(tmp_path / "calm", augment), monkeypatch)
    folder = tmp_path / "run"
    sweep = sweep_in(folder, augment)
    outcome = launch(sweep, monkeypatch, train=disturbed(lambda: swap(folder), moment))
    kept_in_memory = augment == "none" and "epoch" in moment
    if not kept_in_memory:  # images that are decoded once, and were right then
        assert outcome.status == 75
        counts = outcome.progress.counts()
        assert counts == sweep.progress().counts()
        assert counts["failed"] == 0
        reasons = {one.reason for one in map(outcome.progress.__getitem__, sweep.trainings) if one.state == "waiting"}
        (why,) = {one for one in reasons if "0001.png is not the one" in one or "0002.png is not the one" in one}
        assert "not counted" in why
        assert "the same command" in why
        assert counted(sweep) == []
        assert len(results(sweep)) == (0 if moment.startswith("frozen") else 2)
    swap(folder)
    again = sweep_in(folder, augment)
    assert [one.key for one in again.trainings] == [one.key for one in sweep.trainings]
    assert launch(again, monkeypatch).status == 0
    assert results(again) == expected


def test_data_that_were_edited_for_good_are_other_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = sweep_in(tmp_path / "run", "none", ONE_STAGE)
    assert launch(sweep, monkeypatch).status == 0
    swap(tmp_path / "run")
    edited = sweep_in(tmp_path / "run", "none", ONE_STAGE)
    assert not {one.key for one in edited.trainings} & {one.key for one in sweep.trainings}
    assert launch(edited, monkeypatch).status == 0
    assert results(edited) != results(sweep)
    swap(tmp_path / "run")
    assert launch(sweep_in(tmp_path / "run", "none", ONE_STAGE), monkeypatch).found_nothing_to_do


def test_a_sweep_is_evaluated_on_the_data_that_it_names_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They must be those that it was trained on; a checkpoint by its path knows only where they were."""
    folder = tmp_path / "run"
    assert launch(sweep_in(folder, "none", ONE_STAGE), monkeypatch).status == 0
    sweep, settings = str(folder / "tiny.yaml"), ["--store", str(folder / "store"), "--set", ONE_STAGE, "--set"]

    def told(words: list[str], data: str) -> tuple[int, str, str]:
        status = run([*words, *settings, f"data.root={folder / data}"])
        return status, *capsys.readouterr()

    shutil.copytree(folder / "data", folder / "copy")
    captions(folder / "copy")
    for words in (["evaluate", sweep], ["search", sweep, "a number"]):
        before = told(words, "data")
        assert before[0] == 0
        for data, said in (("copy", "copy is not what the cell was trained on"), ("none", "not found")):
            status, _, errors = told(words, data)
            assert (status, said in errors) == (2, True), errors
        (folder / "data").rename(folder / "moved")
        assert told(words, "moved")[1].replace("/moved/", "/data/") == before[1]
        (folder / "moved").rename(folder / "data")


def replaced(path: Path, content: bytes) -> None:
    """Write other content of the same size in place; the time stays."""
    before = path.stat()
    assert len(content) == before.st_size
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def numbers(data: Path) -> None:
    """Flip a bit of the first numbers of the images."""
    content = bytearray((data / "train_ims.npy").read_bytes())
    content[129] ^= 1
    replaced(data / "train_ims.npy", bytes(content))


def captions(data: Path) -> None:
    """Exchange a word of a caption, as many times as it is called."""
    content = (data / "dataset_tiny.json").read_bytes()
    words = [b"number 0 said in way 0", b"number 0 said in wax 0"]
    old, new = words if words[0] in content else reversed(words)
    replaced(data / "dataset_tiny.json", content.replace(old, new, 1))


def sharded(data: Path) -> None:
    """The images as one WebDataset shard for each split."""
    write_dataset(data / "made")
    for one in json.loads((data / "made/dataset_tiny.json").read_text())["images"]:
        split = one["split"].replace("restval", "train")
        with tarfile.open(data / f"{split}.tar", "a") as shard:
            image = data / "made" / one["filepath"] / one["filename"]
            shard.add(image, image.name)
            text = image.with_suffix(".txt")
            text.write_text("\n".join(sentence["raw"] for sentence in one["sentences"]))
            shard.add(text, text.name)
    shutil.rmtree(data / "made")


def in_shard(data: Path) -> None:
    """Flip a bit in the middle of the first image of the shard of train."""
    content = bytearray((data / "train.tar").read_bytes())
    content[2000] ^= 1
    replaced(data / "train.tar", bytes(content))


IMAGE = "min_word_count: 1, image: {size: 32, resize: 32, augment: crop_flip}"
CHANGES: dict[str, tuple[str, Callable[[Path], object], Callable[[Path], None], str]] = {
    "captions": (f"karpathy, {IMAGE}", write_dataset, captions, "the data ("),
    "shard": (f"source, {IMAGE}", sharded, in_shard, "train.tar"),
    "vectors": ("precomp, min_word_count: 1", write_vectors, numbers, "row 0 of"),
}
"""What changes: the data's settings, who writes them, who changes them and changes them back, and what is named."""


def sweep_of(folder: Path, change: str) -> OpenedSweep:
    settings, write, _, _ = CHANGES[change]
    if not (folder / "data").exists():
        (folder / "data").mkdir(parents=True)
        write(folder / "data")
    data = f"{{name: tiny, root: {folder / 'data'}, format: {settings}}}"
    lines = [line for line in SWEEP.splitlines() if not line.startswith("data:")]
    if change == "vectors":
        lines = [line for line in lines if not line.startswith("model:") and "finetune" not in line]
        lines.append(OF_VECTORS)
    (folder / "tiny.yaml").write_text("\n".join([*lines, f"data: {data}", "resources: {loader_workers: 0}"]))
    return open_sweep(
        load_sweep(str(folder / "tiny.yaml"), [f"store={folder / 'store'}", f"tracking=sqlite:///{folder}/m.db"])
    )


MOMENTS = {
    "shard": ("frozen begins", "finetune begins", "finetune epoch 1"),
    "captions": ("frozen begins", "finetune begins"),  # a unit that has begun has those of its index
    "vectors": ("frozen begins", "frozen epoch 1"),
}
QUICK = {("shard", "finetune begins"), ("vectors", "frozen begins")}
"""Some changes at one moment. That of an exchanged image is noticed at all of them."""


@pytest.mark.parametrize(
    ("change", "moment"),
    [
        pytest.param(change, one, marks=[pytest.mark.exhaustive] * ((change, one) not in QUICK))
        for change in CHANGES
        for one in MOMENTS[change]
    ],
)
def test_nothing_is_trained_on_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, moment: str):
    _, _, act, named = CHANGES[change]

    def change_it() -> None:
        act(tmp_path / "run" / "data")

    expected = calm_results(change, lambda: sweep_of(tmp_path / "calm", change), monkeypatch)
    sweep = sweep_of(tmp_path / "run", change)
    outcome = launch(sweep, monkeypatch, train=disturbed(change_it, moment))
    reasons = {one.reason for one in map(outcome.progress.__getitem__, sweep.trainings) if one.state == "waiting"}
    assert any(named in reason or "the data (" in reason for reason in reasons), reasons
    assert counted(sweep) == []
    change_it()  # back
    again = sweep_of(tmp_path / "run", change)
    assert [one.key for one in again.trainings] == [one.key for one in sweep.trainings]
    assert launch(again, monkeypatch).status == 0
    assert results(again) == expected
