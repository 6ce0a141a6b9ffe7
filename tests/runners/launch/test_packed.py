"""A launch that finds a pack of its images."""

from pathlib import Path

import pytest

from goal_sweep.runners.cli.app import run
from goal_sweep.runners.launch.opened import OpenedSweep
from tests.helpers.in_process import launch, results, sweep_in


def logs(sweep: OpenedSweep) -> list[str]:
    return [path.read_text() for path in sweep.store.root.glob("cells/*/*/log.txt")]


@pytest.mark.slow
def test_a_launch_uses_the_pack_and_has_the_same_ids_and_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    plain, packed = (sweep_in(tmp_path / name, "data.image.augment=crop_flip") for name in ("plain", "packed"))
    given = ["--set", "data.image.augment=crop_flip", "--store", str(tmp_path / "packed" / "store")]
    assert run(["data", "pack", str(tmp_path / "packed" / "tiny.yaml"), *given]) == 0
    for sweep in (plain, packed):
        assert launch(sweep, monkeypatch).status == 0
    assert [one.key for one in plain.trainings] == [one.key for one in packed.trainings]
    assert results(plain) == results(packed)
    assert len(results(packed)) == 4
    assert all("images: decoded from their files" in log for log in logs(plain))
    assert all(f"images: pack {packed.store.packs}" in log for log in logs(packed))
