"""What is remembered of the check of initial weights, and what is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from goal_core import checkpoints
from goal_core.basics.errors import WeightsError
from runners.launch.checked import check_key, remember, was_checked
from runners.launch.opened_sweep import OpenedSweep
from runners.store.storage.place import CACHE
from tests.helpers.sweep_cases import opened_in


def opened(folder: Path) -> OpenedSweep:
    """A sweep on data of which only the size is known."""
    splits: Any = {"train": SimpleNamespace(num_captions=1000)}
    return replace(opened_in(folder), dataset=SimpleNamespace(splits=splits))  # type: ignore[arg-type]


def test_a_check_that_passed_is_not_repeated_until_something_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, checked = opened(tmp_path), []
    monkeypatch.setattr(checkpoints, "check_initial_weights", lambda model, data, dataset: checked.append(model))

    sweep.check_trainable()
    sweep.check_trainable()
    assert len(checked) == 1

    replace(sweep, weights=dict.fromkeys(sweep.weights, "sha256:0123")).check_trainable()
    replace(sweep, data_fingerprint="other").check_trainable()
    assert len(checked) == 3


def test_a_check_that_failed_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep, tries = opened(tmp_path), []

    def fail(*arguments: object) -> None:
        tries.append(arguments)
        raise WeightsError("they do not fit")

    monkeypatch.setattr(checkpoints, "check_initial_weights", fail)
    for _ in range(2):
        with pytest.raises(WeightsError):
            sweep.check_trainable()
    assert len(tries) == 2


@pytest.mark.parametrize("weights_id", ["timm:resnet18.a1_in1k", "sha256:01 bert hub:bert-base-uncased"])
def test_weights_known_by_name_are_always_checked(weights_id: str, tmp_path: Path) -> None:
    sweep = opened_in(tmp_path)
    key = check_key(sweep.config.model.models[0], weights_id, sweep.config.data, sweep.data_fingerprint)
    remember(key)
    assert not was_checked(key)


def test_where_nothing_can_be_written_nothing_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(CACHE, str(tmp_path / "file"))
    remember("0123456789abcdef")
    assert not was_checked("0123456789abcdef")
