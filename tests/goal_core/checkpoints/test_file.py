"""Checkpoint files prove their content: whatever bit flips, nothing wrong is read."""

from io import BufferedReader
from itertools import product
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from goal_sweep.goal_core.basics import atomic
from goal_sweep.goal_core.basics.atomic import DamagedError, StorageError
from goal_sweep.goal_core.basics.errors import WeightsError
from goal_sweep.goal_core.checkpoints.file import (
    optimizer_tensors,
    read_checkpoint,
    read_of_training,
    restore_optimizer,
    write_checkpoint,
)

TENSORS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(True), "c": torch.ones(2, dtype=torch.bfloat16)}
STATE = {"training": "key", "epoch": 3, "lr": 0.1, "history": [{"rsum": 12.5}], "name": "é"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "x.safetensors", TENSORS, STATE)
    return tmp_path / "x.safetensors"


def test_what_is_written_is_read_and_equal_content_is_an_equal_file(path: Path, tmp_path: Path) -> None:
    tensors, state = read_checkpoint(path)
    assert state == STATE
    assert all(
        torch.equal(tensors[name], TENSORS[name]) and tensors[name].dtype == TENSORS[name].dtype for name in "abc"
    )
    write_checkpoint(tmp_path / "y.safetensors", TENSORS, STATE)
    assert path.read_bytes() == (tmp_path / "y.safetensors").read_bytes()


def test_tied_weights_are_written_under_each_of_their_names(tmp_path: Path) -> None:
    one = torch.rand(3, 2)
    write_checkpoint(tmp_path / "x.safetensors", {"shared": one, "embed": one, "part": one[1:]}, {})
    tensors, _ = read_checkpoint(tmp_path / "x.safetensors")
    assert torch.equal(tensors["shared"], one)
    assert torch.equal(tensors["embed"], one)
    assert torch.equal(tensors["part"], one[1:])


def test_no_flipped_bit_goes_unnoticed(path: Path) -> None:
    content = path.read_bytes()
    unnoticed = []
    for position, bit in product(range(len(content)), range(8)):
        path.write_bytes(content[:position] + bytes([content[position] ^ 1 << bit]) + content[position + 1 :])
        try:
            tensors, state = read_of_training(path, "key")
        except DamagedError:
            continue
        unnoticed.append(content[position : position + 1])
        assert state == STATE
        assert all(torch.equal(tensors[name], TENSORS[name]) for name in "abc")
    assert unnoticed == [b"e"]  # of the escaped letter: u00E9 is u00e9


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "old.safetensors", metadata={"state": '{"epoch": 3}'})
    with pytest.raises(DamagedError, match="checksum"):
        read_checkpoint(tmp_path / "old.safetensors")
    save_file(TENSORS, tmp_path / "theirs.safetensors")
    with pytest.raises(WeightsError, match="is not a goal-sweep checkpoint"):
        read_checkpoint(tmp_path / "theirs.safetensors")
    with pytest.raises(WeightsError, match="there is no checkpoint"):
        read_checkpoint(tmp_path / "none.safetensors")


def test_a_read_error_that_passes_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, left = atomic.open_file, [2]

    def stale(place: Path) -> BufferedReader:
        left[0] -= 1
        if left[0] >= 0:
            raise OSError(116, "Stale file handle")
        return opened(place)

    monkeypatch.setattr(atomic, "open_file", stale)
    assert read_checkpoint(path)[1] == STATE
    left[0] = 100
    with pytest.raises(StorageError, match="Stale file handle"):
        read_checkpoint(path)


def test_adams_moments_lie_like_their_weights_after_a_restart(tmp_path: Path) -> None:
    """Files know one order of numbers, fused Adam that of the memory: a network of one's own may have another."""
    filters = torch.nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last).weight
    filters.grad = torch.randn_like(filters)
    before, after = (torch.optim.Adam([filters], lr=0.0, fused=True) for _ in range(2))
    before.step()
    write_checkpoint(tmp_path / "state", optimizer_tensors(before), {})
    restore_optimizer(after, read_checkpoint(tmp_path / "state")[0])
    old, new = (one.state[filters]["exp_avg"] for one in (before, after))
    assert new.stride() == filters.stride() != filters.contiguous().stride()
    assert torch.equal(new, old)


def test_others_may_read_a_checkpoint_as_they_may_read_other_files(tmp_path: Path) -> None:
    """In a store that a group shares, its weights too."""
    (tmp_path / "other").touch()
    write_checkpoint(tmp_path / "model.safetensors", {"a": torch.zeros(2)}, {})
    assert (tmp_path / "model.safetensors").stat().st_mode == (tmp_path / "other").stat().st_mode
