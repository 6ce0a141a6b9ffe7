"""A pack is whole or not used, whatever happens while it is written and later; packing again mends it."""

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest

from goal_sweep.goal_core.basics import atomic
from goal_sweep.goal_core.basics.errors import DataError
from goal_sweep.goal_core.data import packs
from goal_sweep.goal_core.data.packs import estimate_bytes, open_packed, plan_pack, write_pack
from tests.helpers.karpathy_fixture import write_dataset
from tests.helpers.packs import CROPS, SMALL, KilledError, opened, packed, same, seen

# Python 3.12 warns when a process with threads forks, which torch's worker processes do.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")


def test_a_killed_pack_continues_to_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_dataset(tmp_path / "data")
    dataset = opened(root, CROPS)
    whole = plan_pack(dataset, CROPS, tmp_path / "whole")
    write_pack(dataset, whole, per_shard=SMALL)
    plan, kills = plan_pack(dataset, CROPS, tmp_path / "killed"), 0
    for left in range(1, 1000, 3):
        points = iter(range(left))

        def die(operation: str, path: Path, points: Any = points) -> None:
            if operation in ("write", "sync", "rename") and next(points, None) is None:
                raise KilledError

        monkeypatch.setattr(atomic, "before_operation", die)
        try:
            write_pack(dataset, plan, per_shard=SMALL)
            break
        except KilledError:
            kills += 1
            assert "no whole pack" in open_packed(dataset, CROPS, tmp_path / "killed")[1] or left == 1
    assert kills > 3
    files = {path.name: path.read_bytes() for path in whole.folder.iterdir()}
    kept = [path for path in plan.folder.iterdir() if not path.name.startswith(".")]  # a living process's stay
    assert files == {path.name: path.read_bytes() for path in kept}
    assert len(files) > 8


@pytest.mark.parametrize("operation", ["write", "sync", "rename"])
def test_a_write_error_in_the_middle_of_a_shard_leaves_a_whole_pack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    dataset = opened(write_dataset(tmp_path / "data"), CROPS)
    failed: list[str] = []

    def fail(done: str, path: Path) -> None:
        if (done, path.name) == (operation, "train-00000.zip") and not failed:
            failed.append(done)
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(atomic, "before_operation", fail)
    plan = plan_pack(dataset, CROPS, tmp_path / "packs")
    write_pack(dataset, plan)
    assert failed
    assert same(seen(dataset, CROPS), seen(open_packed(dataset, CROPS, tmp_path / "packs")[0], CROPS))


def test_of_two_processes_that_pack_at_once_both_give_the_whole_pack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = opened(write_dataset(tmp_path / "data"), CROPS)
    plan, write = plan_pack(dataset, CROPS, tmp_path / "packs"), packs._write_shard
    others: list[int] = []

    def writing_too(*arguments: Any) -> None:
        if len(others) < 1:
            others.append(0)
            write_pack(dataset, plan, per_shard=SMALL)  # the other process starts and ends here
        write(*arguments)

    monkeypatch.setattr(packs, "_write_shard", writing_too)
    write_pack(dataset, plan, per_shard=SMALL)
    assert others
    assert same(seen(dataset, CROPS), seen(open_packed(dataset, CROPS, tmp_path / "packs")[0], CROPS))


def test_an_image_that_changes_is_named_and_its_pack_is_never_whole(tmp_path: Path) -> None:
    root = write_dataset(tmp_path / "data")
    dataset, plan = opened(root, CROPS), plan_pack(opened(root, CROPS), CROPS, tmp_path / "packs")
    (root / "pictures" / "0002.png").write_bytes((root / "pictures" / "0009.png").read_bytes())
    for _ in range(2):
        with pytest.raises(DataError, match=r"image .*0002\.png is not the one that was indexed"):
            write_pack(dataset, plan)
    assert "no whole pack" in open_packed(dataset, CROPS, tmp_path / "packs")[1]
    assert same(seen(opened(root, CROPS), CROPS), seen(packed(root, CROPS, tmp_path / "packs"), CROPS))


def test_a_disk_without_room_is_refused_before_anything_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = opened(write_dataset(tmp_path / "data"), CROPS)
    plan = plan_pack(dataset, CROPS, tmp_path / "packs")
    sizes = estimate_bytes(dataset, plan)
    assert sizes == {"train": 8 * 40 * 30 * 3, "val": 3 * 16 * 16 * 3, "test": 3 * 16 * 16 * 3}
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=sum(sizes.values()) - 1))
    with pytest.raises(DataError, match=r"GB free and needs .*data.image.shrink"):
        write_pack(dataset, plan)
    assert not list(plan.folder.glob("*.zip"))


@pytest.mark.parametrize("name", ["train-00001.zip", "val-00000.zip", "pack.json"])
@pytest.mark.parametrize("damage", ["cut", "flip", "rows", "end", "remove"])
def test_a_damaged_pack_is_not_used_and_packing_again_mends_it(
    tmp_path: Path, name: str, damage: str, capfd: pytest.CaptureFixture[str]
) -> None:
    root, packs = write_dataset(tmp_path / "data"), tmp_path / "packs"
    expected = seen(packed(root, CROPS, packs), CROPS)
    dataset = opened(root, CROPS)
    plan = plan_pack(dataset, CROPS, packs)
    path = plan.folder / name
    content = bytearray(path.read_bytes())
    content[{"flip": len(content) // 2, "rows": -20, "end": -7}.get(damage, 0)] ^= damage != "cut"
    path.write_bytes(content[:-9] if damage == "cut" else content)
    if damage == "remove":
        path.unlink()
    if (name, damage) == ("pack.json", "remove"):
        assert "no whole pack" in open_packed(dataset, CROPS, packs)[1]
    else:
        used, _ = open_packed(dataset, CROPS, packs)
        assert same(expected, seen(used, CROPS))  # the images come from their files
        (line,) = {line for line in capfd.readouterr().err.splitlines() if name in line}
        assert "goal-sweep data pack" in line
        assert "no whole pack" in open_packed(dataset, CROPS, packs)[1]  # nobody else uses it
    assert same(expected, seen(packed(root, CROPS, packs), CROPS))
