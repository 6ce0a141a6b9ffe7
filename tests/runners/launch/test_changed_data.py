"""Images that change while a sweep trains: nothing is trained with them, nothing is charged, and no result is lost."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import save_file

from goal_sweep.goal_core.basics import columns
from goal_sweep.goal_core.data.formats.image_files import FileReader
from goal_sweep.goal_core.models.weights import timm_library
from goal_sweep.goal_core.training import EpochDone, TrainingEvent, train_unit
from goal_sweep.runners.cli.app import run
from goal_sweep.runners.execution import worker
from goal_sweep.runners.execution.unit_job import UnitJob
from goal_sweep.runners.execution.worker import run_unit
from goal_sweep.runners.launch import launcher
from goal_sweep.runners.launch.launch import LaunchOutcome
from goal_sweep.runners.launch.opened_sweep import OpenedSweep, open_sweep
from goal_sweep.runners.store import charged_failures
from tests.helpers.in_process import InProcess, launch, results
from tests.helpers.karpathy_fixture import write_dataset
from tests.helpers.region_files import write_regions
from tests.helpers.vector_files import write_vectors

SWEEP = """
name: tiny
data: {format: karpathy, name: tiny, root: DATA, min_word_count: 1, image: {size: 32, resize: 32, augment: AUGMENT}}
model: {backbones: [{name: test_resnet, weights: random}], text: {word_dim: 8}, embed_dim: 16}
objectives: {only: [con/con, sig-ms/cir]}
seeds: [1]
stages:
  - {name: frozen, epochs: 2, lr: 1e-3, batch_size: 8}
  - {name: finetune, epochs: 2, lr: 1e-4, batch_size: 8}
execution: {sharing: trunk, cells_per_unit: 0}
"""

FRAMEWORKS = {
    "regions": "{framework: vse_infty, backbones: [{name: butd, weights: precomputed}], embed_dim: 16, "
    "bert: {weights: random, layers: 1, width: 16, heads: 2}}",
    "precomp": "{backbones: [{name: vgg19, weights: precomputed}], text: {word_dim: 8}, embed_dim: 16}",
    "embeddings": "{framework: vectors, backbones: [{name: any, weights: precomputed}], embed_dim: 16}",
}
"""The model for each format of features."""


CALM: dict[str, Any] = {}
"""The results of launches that nothing disturbed."""


def sweep_in(folder: Path, augment: str = "none", *settings: str) -> OpenedSweep:
    folder.mkdir(exist_ok=True)
    if not (folder / "data").exists():
        write_dataset(folder / "data")
    text = SWEEP.replace("DATA", str(folder / "data")).replace("AUGMENT", augment)
    (folder / "tiny.yaml").write_text(text)
    places = [f"store={folder / 'store'}", f"tracking=sqlite:///{folder}/m.db"]
    return open_sweep(str(folder / "tiny.yaml"), [*places, *settings])


def swap(folder: Path) -> None:
    """Exchange two images of the training split; their times stay."""
    first, second = (folder / "data/pictures" / name for name in ("0001.png", "0002.png"))
    times = [path.stat() for path in (first, second)]
    contents = [path.read_bytes() for path in (second, first)]
    for path, content, status in zip((first, second), contents, times, strict=True):
        path.write_bytes(content)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def disturbed(act: Callable[[], None], moment: str) -> type[InProcess]:
    """Runs units as `InProcess` does, and acts once at a moment."""

    class Disturbed(InProcess):
        def run(self, jobs: Sequence[UnitJob], observer: Any) -> None:
            left, acts = deque(jobs), [act]

            def events(happened: Sequence[TrainingEvent]) -> None:
                ended = {one.record["epoch"] for one in happened if isinstance(one, EpochDone)}
                if acts and job.unit.stage.name == moment.split()[0] and "epoch 1" in moment and 1 in ended:
                    acts.pop()()
                observer.events(happened)

            while left:
                job = left.popleft()
                observer.started(job)
                if acts and moment == f"{job.unit.stage.name} begins":
                    acts.pop()()
                run_unit(job, events)
                left.extend(observer.finished(job))

    return Disturbed


def launched(sweep: OpenedSweep, runs: type[InProcess], monkeypatch: pytest.MonkeyPatch) -> LaunchOutcome:
    with monkeypatch.context() as patch:
        patch.setattr("tests.helpers.in_process.InProcess", runs)
        patch.setattr(launcher, "RayUnits", runs)
        return launch(sweep, patch)


@pytest.mark.parametrize("augment", ["none", "crop_flip"])
@pytest.mark.parametrize("moment", ["frozen begins", "finetune begins", "finetune epoch 1"])
def test_nothing_is_trained_on_images_that_were_exchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, augment: str
) -> None:
    if augment not in CALM:
        calm = sweep_in(tmp_path / "calm", augment)
        assert launch(calm, monkeypatch).status == 0
        CALM[augment] = results(calm)
    folder = tmp_path / "run"
    sweep = sweep_in(folder, augment)
    outcome = launched(sweep, disturbed(lambda: swap(folder), moment), monkeypatch)
    kept_in_memory = augment == "none" and "epoch" in moment
    if not kept_in_memory:  # images that are decoded once, and were right then
        assert outcome.status == 1
        reasons = {one.reason for one in map(outcome.progress.__getitem__, sweep.trainings) if one.state == "failed"}
        (why,) = {one for one in reasons if "0001.png is not the one" in one or "0002.png is not the one" in one}
        assert "not charged" in why
        assert "the same command" in why
        assert not any(charged_failures(sweep.store.folder(one).attempts.all()) for one in sweep.trainings)
        assert len(results(sweep)) == (0 if moment.startswith("frozen") else 2)
    swap(folder)
    again = sweep_in(folder, augment)
    assert [one.key for one in again.trainings] == [one.key for one in sweep.trainings]
    assert launch(again, monkeypatch).status == 0
    assert results(again) == CALM[augment]


def test_data_that_were_edited_for_good_are_other_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = sweep_in(tmp_path / "run")
    assert launch(sweep, monkeypatch).status == 0

    def of_other_data() -> list[str]:
        capsys.readouterr()
        given = ["--set", f"store={tmp_path}/run/store", "--set", f"tracking=sqlite:///{tmp_path}/run/m.db"]
        assert run(["data", "check", str(tmp_path / "run/tiny.yaml"), *given, "--store", "--json"]) == 0
        found: list[str] = json.loads(capsys.readouterr().out)["other_data"]
        return found

    assert not of_other_data()
    swap(tmp_path / "run")
    found = of_other_data()
    assert len(found) == len(sweep.trainings)
    assert all(sweep.data_fingerprint in line for line in found)
    assert any("sig-ms/cir test_resnet seed 1 (finetune)" in line for line in found)
    edited = sweep_in(tmp_path / "run")
    assert not {one.key for one in edited.trainings} & {one.key for one in sweep.trainings}
    assert launch(edited, monkeypatch).status == 0
    assert results(edited) != results(sweep)
    assert of_other_data() == found
    swap(tmp_path / "run")  # nothing is launched: the sweep's table is of the other data
    found = of_other_data()
    assert launch(sweep, monkeypatch).status == 0
    assert of_other_data() == found
    assert len(found) == len(edited.trainings)
    assert all(edited.data_fingerprint in line for line in found)


def flip(path: Path) -> None:
    """Change a byte in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_damaged_caches_are_named_in_the_log_of_each_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOAL_SWEEP_PACKS", str(tmp_path / "packs"))
    sweep = sweep_in(tmp_path / "run", "crop_flip", "resources.loader_workers=1")  # which opens the pack's shards
    given = [f"--set=store={tmp_path}/run/store", "--set=data.image.augment=crop_flip"]
    assert run(["data", "pack", str(tmp_path / "run/tiny.yaml"), *given]) == 0
    damaged = list[Path]()

    def damage() -> None:
        store = tmp_path / "run/store"
        damaged.extend([*store.glob("indexes/*.index"), *store.glob("indexes/*.tokens")])
        damaged.extend((tmp_path / "packs").glob("*/train-*.zip"))
        for path in damaged:
            flip(path)

    assert launched(sweep, disturbed(damage, "finetune begins"), monkeypatch).status == 0
    assert {path.suffix for path in damaged} == {".index", ".tokens", ".zip"}
    for training in sweep.trainings:
        lines = sweep.store.folder(training).path("log.txt").read_text().splitlines()
        for path in damaged:
            is_named = any(f"{path} is damaged" in line and "set aside" in line for line in lines)
            assert is_named == (training.stage.name == "finetune"), (training.name, path)


def replaced(path: Path, content: bytes) -> None:
    """Write other content of the same size in place; the time stays."""
    before = path.stat()
    assert len(content) == before.st_size
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def exchange(name: str, ours: bytes, theirs: bytes) -> Callable[[Path], None]:
    """Exchange two parts of a file of the data, as many times as it is called."""

    def act(data: Path) -> None:
        content = (data / name).read_bytes()
        old, new = (ours, theirs) if ours in content else (theirs, ours)
        replaced(data / name, content.replace(old, new, 1))

    return act


def numbers(name: str) -> Callable[[Path], None]:
    """Flip a bit of the first numbers of a file of the data."""

    def act(data: Path) -> None:
        content = bytearray((data / name).read_bytes())
        content[129] ^= 1
        replaced(data / name, bytes(content))

    return act


def captions(data: Path) -> None:
    exchange("dataset_tiny.json", b"number 0 said in way 0", b"number 0 said in wax 0")(data)


def linked_data(data: Path) -> None:
    """An image that is a link within the data."""
    write_dataset(data)
    (data / "pictures/0001.png").rename(data / "kept.png")
    (data / "pictures/0001.png").symlink_to(data / "kept.png")


def other_target(data: Path) -> None:
    """Let the link lead to another image, or back."""
    link = data / "pictures/0001.png"
    target = data / ("kept.png" if link.resolve().name != "kept.png" else "pictures/0002.png")
    link.unlink()
    link.symlink_to(target)


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


def embedded(data: Path) -> None:
    for number, split in enumerate(("train", "val", "test")):
        for part, count in (("images", 12), ("texts", 24)):
            np.save(data / f"{split}_{part}.npy", np.random.default_rng([number, count]).normal(size=(count, 8)))


IMAGE = "min_word_count: 1, image: {size: 32, resize: 32, augment: crop_flip}"
CHANGES: dict[str, tuple[str, Callable[[Path], object], Callable[[Path], None], str]] = {
    "captions": (f"karpathy, {IMAGE}", write_dataset, captions, "the data ("),
    "link": (f"karpathy, {IMAGE}", linked_data, other_target, "0001.png"),
    "shard": (f"source, {IMAGE}", sharded, in_shard, "train.tar"),
    "regions": ("regions, min_word_count: 1", write_regions, numbers("train_ims.npy"), "row 0 of"),
    "vectors": ("precomp, min_word_count: 1", write_vectors, numbers("train_ims.npy"), "row 0 of"),
    "texts": ("embeddings", embedded, numbers("train_texts.npy"), "text 0 of image 0"),
}
"""What changes: the data's settings, who writes them, who changes them and changes them back, and what is named."""


def sweep_of(folder: Path, change: str) -> OpenedSweep:
    settings, write, _, _ = CHANGES[change]
    if not (folder / "data").exists():
        (folder / "data").mkdir(parents=True)
        write(folder / "data")
    kind = settings.partition(",")[0]
    data = f"{{name: tiny, root: {folder / 'data'}, format: {settings}}}"
    lines = [line for line in SWEEP.splitlines() if not line.startswith("data:")]
    if kind in FRAMEWORKS:
        lines = [line for line in lines if not line.startswith("model:") and "finetune" not in line]
        lines.append(f"model: {FRAMEWORKS[kind]}")
    (folder / "tiny.yaml").write_text("\n".join([*lines, f"data: {data}", "resources: {loader_workers: 0}"]))
    return open_sweep(str(folder / "tiny.yaml"), [f"store={folder / 'store'}", f"tracking=sqlite:///{folder}/m.db"])


def check_stopped_and_continued(
    folder: Path, change: str, named: str, runs: type[InProcess], monkeypatch: pytest.MonkeyPatch, undo: Any
) -> None:
    if change not in CALM:
        calm = sweep_of(folder / "calm", change)
        assert launch(calm, monkeypatch).status == 0
        CALM[change] = results(calm)
    sweep = sweep_of(folder / "run", change)
    outcome = launched(sweep, runs, monkeypatch)
    reasons = {one.reason for one in map(outcome.progress.__getitem__, sweep.trainings) if one.state == "failed"}
    assert any(named in reason or "the data (" in reason for reason in reasons), reasons
    assert not any(charged_failures(sweep.store.folder(one).attempts.all()) for one in sweep.trainings)
    undo()
    again = sweep_of(folder / "run", change)
    assert [one.key for one in again.trainings] == [one.key for one in sweep.trainings]
    assert launch(again, monkeypatch).status == 0
    assert results(again) == CALM[change]


MOMENTS = {
    **dict.fromkeys(("link", "shard"), ("frozen begins", "finetune begins", "finetune epoch 1")),
    "captions": ("frozen begins", "finetune begins"),  # a unit that has begun has those of its index
    **dict.fromkeys(("regions", "vectors", "texts"), ("frozen begins", "frozen epoch 1")),
}
QUICK = {
    ("link", "finetune epoch 1"), ("shard", "finetune begins"), ("captions", "finetune begins"),
    ("regions", "frozen epoch 1"), ("vectors", "frozen epoch 1"), ("texts", "frozen begins"),
}  # fmt: skip
"""Each change at one moment. That of an exchanged image is noticed at all of them."""


@pytest.mark.parametrize(
    ("change", "moment"),
    [
        pytest.param(change, one, marks=[pytest.mark.exhaustive] * ((change, one) not in QUICK))
        for change in CHANGES
        for one in MOMENTS[change]
    ],
)
def test_nothing_is_trained_on_what_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, moment: str
) -> None:
    _, _, act, named = CHANGES[change]

    def change_it() -> None:
        act(tmp_path / "run" / "data")

    check_stopped_and_continued(tmp_path, change, named, disturbed(change_it, moment), monkeypatch, change_it)


@pytest.mark.parametrize("stage", ["frozen", pytest.param("finetune", marks=pytest.mark.exhaustive)])
def test_a_file_that_is_another_for_the_time_of_one_read_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    content, armed = FileReader.content, list[str]()

    def swapped_for_one_read(self: FileReader, index: int) -> tuple[bytes, list[Any]]:
        if not armed or "0001.png" not in self.label(index):
            return content(self, index)
        armed.pop()
        swap(tmp_path / "run")
        found = content(self, index)
        swap(tmp_path / "run")
        return found

    monkeypatch.setattr(FileReader, "content", swapped_for_one_read)
    runs = disturbed(lambda: armed.append("once"), f"{stage} begins")
    check_stopped_and_continued(tmp_path, "captions", "0001.png", runs, monkeypatch, lambda: None)


CACHES = ("indexes/*.index", "indexes/*.tokens", "features/*.safetensors")


@pytest.mark.parametrize("in_memory", [1 << 28, pytest.param(0, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("moment", ["frozen epoch 1", pytest.param("finetune epoch 1", marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("damage", ["edited", "cut"])
def test_a_cache_that_is_edited_in_place_while_a_sweep_trains_changes_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str, moment: str, in_memory: int
) -> None:
    monkeypatch.setattr(columns, "IN_MEMORY", in_memory)
    if "none" not in CALM:
        calm = sweep_in(tmp_path / "calm")
        assert launch(calm, monkeypatch).status == 0
        CALM["none"] = results(calm)
    sweep, edited = sweep_in(tmp_path / "run"), set[str]()

    def edit() -> None:
        for pattern in CACHES:
            for path in (tmp_path / "run/store").glob(pattern):
                before = path.stat()
                with path.open("r+b") as file:
                    header = 8 + int.from_bytes(file.read(8), "little")
                    file.seek(header)
                    content = file.read()
                    file.seek(header)
                    file.write(content[::-1] if damage == "edited" else b"")
                    file.truncate()
                os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
                edited.add(pattern)

    assert launched(sweep, disturbed(edit, moment), monkeypatch).status == 0
    assert edited == set(CACHES)
    assert all(len(sweep.store.folder(one).attempts.all()) == 1 for one in sweep.trainings)
    assert results(sweep) == CALM["none"]


def vanish(path: Path) -> None:
    """Move a file away, or back."""
    aside = path.with_suffix(".aside")
    aside.rename(path) if aside.exists() else path.rename(aside)


def empty(path: Path) -> None:
    """Leave an empty file in the place of a file, or put it back."""
    vanish(path)
    path.touch()


@pytest.mark.parametrize(
    ("moment", "act"),
    [
        ("frozen begins", vanish),
        ("frozen is built", vanish),
        ("frozen is built", empty),
        ("finetune begins", vanish),
        pytest.param("frozen begins", empty, marks=pytest.mark.exhaustive),
        pytest.param("finetune begins", empty, marks=pytest.mark.exhaustive),
    ],
)
def test_a_weights_file_that_is_missing_for_a_moment_is_not_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, act: Callable[[Path], None]
) -> None:
    weights = tmp_path / "w.safetensors"
    save_file(timm_library().create_model("test_resnet", num_classes=0).state_dict(), weights)

    def opened(folder: Path) -> OpenedSweep:
        return sweep_in(folder, "none", f"model.backbones=[{{name: test_resnet, weights: {weights}}}]")

    calm = opened(tmp_path / "calm")
    assert launch(calm, monkeypatch).status == 0
    sweep = opened(tmp_path / "run")
    with monkeypatch.context() as patch:
        if moment == "frozen is built":  # after its inputs have been compared

            def built(*arguments: Any, **named: Any) -> None:
                act(weights)
                train_unit(*arguments, **named)

            patch.setattr(worker, "train_unit", built)
            outcome = launch(sweep, patch)
        else:
            outcome = launched(sweep, disturbed(lambda: act(weights), moment), patch)
    assert outcome.status == 1
    reasons = [outcome.progress[one].reason for one in sweep.trainings]
    assert any("w.safetensors" in reason or "the first weights" in reason for reason in reasons)
    assert not any(charged_failures(sweep.store.folder(one).attempts.all()) for one in sweep.trainings)
    act(weights)
    assert launch(opened(tmp_path / "run"), monkeypatch).status == 0
    assert results(sweep) == results(calm)
