"""What a result in the store states is checked whenever it is read: what no training writes is damage, and is named."""

import json
from typing import Any

import pytest

from goal_sweep.goal_core.basics.atomic import DamagedError
from goal_sweep.goal_core.basics.files import json_bytes
from goal_sweep.runners.store import Store, TrainingFolder
from tests.helpers.store_cases import claimed, named, npz, record, save, train

TRAINING = named("a" * 16)
BEST, SHA = "best.safetensors", "0" * 64


@pytest.fixture
def folder(store: Store) -> TrainingFolder:
    folder = claimed(store.folder(TRAINING))
    save(folder, "ranks.npz", npz("x"))
    train(folder, 3)
    return folder


def rewrite(folder: TrainingFolder, change: dict[str, Any]) -> None:
    """Change keys of the result; None removes one. The checksum is that of the new content."""
    path = folder.folder / "result.json"
    changed = {**json.loads(path.read_text()), **change}
    path.write_bytes(json_bytes({key: value for key, value in changed.items() if value is not None}))


def is_damaged(store: Store, folder: TrainingFolder, said: str) -> None:
    """Status says so, and a launch trains it again."""
    with pytest.raises(DamagedError, match=r"result\.json is damaged: ") as caught:
        folder.result()
    assert said in str(caught.value)
    status = store.status([TRAINING])[TRAINING]
    assert status.state == "waiting"
    assert said in status.reason
    train(claimed(store.folder(TRAINING), "M"))
    assert store.status([TRAINING])[TRAINING].state == "done"


FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "no seconds": ({"seconds": None}, "seconds"),
    "a metric as list": ({"metrics": {"test/rsum": [42]}}, "'list'"),
    "no files": ({"files": None}, "files"),
    "empty files": ({"files": {}}, "files"),
}


@pytest.mark.parametrize(("change", "said"), FIELDS.values(), ids=FIELDS.keys())
def test_a_field_that_no_training_writes(store: Store, folder: TrainingFolder, change: dict[str, Any], said: str):
    rewrite(folder, change)
    is_damaged(store, folder, said)


@pytest.mark.parametrize(
    ("key", "change", "said"),
    [
        ("metrics.jsonl", None, "files"),
        ("metrics.jsonl", "metrics.jsonl", "files"),
        ("secret.txt", {"name": "secret.txt", "sha256": SHA}, "files"),
        ("last.safetensors", {"name": "last.safetensors", "sha256": SHA}, "files"),
        (BEST, {"name": "../../b/frozen-k/best-3.safetensors"}, "files"),
        (BEST, {"name": "/etc/passwd"}, "files"),
        (BEST, {"name": "best-2.safetensors"}, "files"),
        ("ranks.npz", {"name": "metrics.jsonl"}, "files"),
    ],
)
def test_a_file_that_no_training_states(store: Store, folder: TrainingFolder, key: str, change: Any, said: str) -> None:
    files = json.loads((folder.folder / "result.json").read_text())["files"]
    files.setdefault(key, {"name": key, "sha256": SHA})
    files[key] = {**files[key], **change} if isinstance(change, dict) and change else change
    rewrite(folder, {"files": files})
    is_damaged(store, folder, said)


BROKEN = ("", "[]", "\x00\xff", "[" * 200_000, '{"a":' * 200_000, '{"seconds": NaN}', '{"a": "\\ud800"}', "9" * 9999)


@pytest.mark.parametrize("content", [*BROKEN, '{"status": "do', '{"status": "done"}', '{"metrics": {}}'])
def test_json_that_cannot_be_read_is_damage(store: Store, folder: TrainingFolder, content: str) -> None:
    (folder.folder / "result.json").write_text(content)
    is_damaged(store, folder, "result.json is damaged")
    assert "result.json is damaged" in folder.log_text()


WHOLE = json_bytes(record(1), indent=None)


@pytest.mark.parametrize(
    "line",
    [
        *(b'{"epoch": 1, "time": 0, "metrics": [1]}', b'{"time": 0, "metrics": {}}', b"[" * 200_000),
        *(b'{"epoch": 2}\n', json_bytes({"epoch": 2}, indent=None), WHOLE.replace(b"10.0", b"11.0")),
    ],
)
def test_a_line_that_is_no_epoch_record_is_named_by_its_number(folder: TrainingFolder, line: bytes) -> None:
    folder.path("metrics.jsonl").write_bytes(WHOLE + line)
    with pytest.raises(DamagedError, match=r"metrics\.jsonl:2 is damaged"):
        folder.records()
