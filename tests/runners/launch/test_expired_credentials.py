"""A launch on a store in a bucket whose credentials expire: it ends with 75, and with new ones it continues."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from goal_sweep.goal_core.basics.errors import UnfinishedError
from goal_sweep.goal_core.training import TrainingFailed
from goal_sweep.runners.store import ExpiredCredentialsError
from tests.helpers.in_process import counted, launch, results, sweep_in


def expire_at(server: Any, method: str, part: str) -> None:
    """Let the credentials expire with the first request of a kind."""
    expired: list[bool] = []

    def before(asked: str, path: str) -> str:
        expired.extend([True] if (asked, part in path) == (method, True) else [])
        return "expired" if expired else ""

    server.before = before


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", ["last.", "/attempts/1.json", "result.json"])
def test_a_launch_ends_with_the_advice_and_continues(server: Any, tmp_path: Path, monkeypatch, part: str):
    where = f"store=s3://bucket/{tmp_path.name}"
    sweep = sweep_in(tmp_path, where)
    expire_at(server, "PUT", part)
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 2**22 + 1)  # no process has this number: this launch will have ended
        with pytest.raises(UnfinishedError, match="a role or a credential_process"):
            launch(sweep, patch)
    server.without_faults()
    again = sweep_in(tmp_path, where)
    assert launch(again, monkeypatch).status == 0
    unbroken = sweep_in(tmp_path / "unbroken")
    assert launch(unbroken, monkeypatch).status == 0
    assert results(again) == results(unbroken)
    assert counted(again) == []


def test_a_worker_says_what_kind_of_failure_it_is() -> None:
    failed: Callable[..., TrainingFailed] = TrainingFailed.because_of
    assert failed("k", ExpiredCredentialsError("cannot write s3://bucket/x")).kind == "refused"
