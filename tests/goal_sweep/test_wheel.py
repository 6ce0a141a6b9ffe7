"""The wheel and the source archive: what they contain, and that commands run from the wheel with no checkout."""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[2]


@pytest.mark.exhaustive
def test_commands_and_the_library_run_from_the_wheel(tmp_path: Path) -> None:
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path))
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as file:
        file.extractall(site)
    assert {path.name.partition("-")[0] for path in site.iterdir()} == {"goal_sweep"}  # no name that others may have
    shown = "from goal_sweep import analysis, goal_core, runners, sweeps; print(analysis.__file__)"
    assert Path(_run(site, tmp_path, "-c", shown).strip()).is_relative_to(site)
    entry = next(site.glob("*.dist-info/entry_points.txt")).read_text()
    assert "goal-sweep = goal_sweep.runners.cli.__main__:main" in entry
    plan = json.loads(_run(site, tmp_path, "-m", "goal_sweep.runners.cli", "plan", "quickstart", "--json"))
    assert plan["cells"] == 45


def test_the_source_archive_builds_the_same_packages(tmp_path: Path) -> None:
    (archive,) = SdistBuilder(str(ROOT)).build(directory=str(tmp_path))
    with tarfile.open(archive) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    packed = {"goal_sweep/py.typed", "goal_sweep/sweeps/quickstart.yaml"}
    assert {"pyproject.toml", "hatch_build.py", "LICENSE", *packed} <= names
    assert not {name for name in names if name.startswith((".venv", "goal-sweep-store")) or name.endswith(".pyc")}


def _run(site: Path, cwd: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
