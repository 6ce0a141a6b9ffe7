"""Jobs to render and submit, and programs that take the place of a cluster's."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from goal_sweep.runners.cluster.backend import Job, Submission
from goal_sweep.runners.cluster.submission import sweep_text
from goal_sweep.sweeps.reading.load import load_for_cluster

SWEEP = {
    "name": "tiny",
    "data": {"format": "scenes"},
    "model": {"backbones": [{"name": "test_byobnet", "weights": "random"}]},
    "seeds": [1],
    "stages": [{"name": "frozen", "epochs": 1, "lr": 0.001, "warmup_epochs": 0}],
}


def job(tmp_path: Path, *overrides: str, store: Path = Path("/shared/store"), **more: Any) -> Job:
    """A job of a small sweep, with settings of its cluster as `--set` takes them, without `cluster.`."""
    sweep = tmp_path / "tiny.yaml"
    sweep.write_text(sweep_text(SWEEP))
    loaded = load_for_cluster(sweep, [f"store={store}", *(f"cluster.{one}" for one in overrides)], environ={})
    return Job(
        id="tiny-0a1b2c-1",
        config=loaded.config,
        cluster=loaded.cluster,
        sweep_text=sweep_text(loaded.plain),
        store=str(store),
        folder=store / "submissions" / "tiny-0a1b2c-1",
        working_dir=Path("/home/me"),
        code="0123456789abcdef",
        **more,
    )


def submission(to: str, address: str = "") -> Submission:
    return Submission(id="tiny-0a1b2c-1", sweep="tiny", to=to, job="7", address=address)


def on_path(folder: Path, monkeypatch: pytest.MonkeyPatch, **programs: str) -> Callable[[], list[str]]:
    """Put programs first on the path, each some lines of shell. Returns what tells the command lines so far."""
    log = folder / "log"
    (folder / "bin").mkdir(exist_ok=True)
    for name, text in programs.items():
        path = folder / "bin" / name
        path.write_text(f'#!/bin/bash\necho "{name} $*" >> "{log}"\n{text}\n')
        path.chmod(0o755)
    log.touch()
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")
    return lambda: log.read_text().splitlines()


def everything(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its content."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
