"""A launch that finds a pack of its images, with which units train to the same numbers (tests/goal_core/data/packs)."""

from pathlib import Path

import pytest

from goal_sweep.runners.cli.app import run
from tests.helpers.in_process import launch, results, sweep_in


def test_a_launch_uses_the_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = sweep_in(tmp_path, "data.image.augment=crop_flip")
    given = ["--set", "data.image.augment=crop_flip", "--store", str(sweep.store.root)]
    assert run(["data", "pack", str(tmp_path / "tiny.yaml"), *given]) == 0
    assert launch(sweep, monkeypatch).status == 0
    logs = [path.read_text() for path in sweep.store.root.glob("cells/*/*/log.txt")]
    assert len(results(sweep)) == len(logs) == 4
    assert all(f"images: pack {sweep.store.packs}" in log for log in logs)
