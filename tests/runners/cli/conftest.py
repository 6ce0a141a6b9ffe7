"""A folder with a sweep, in a shell in which Slurm's programs only pretend, and reports without figures."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.blank_figures import blank_figures
from tests.helpers.launches import SWEEP

SBATCH = """#!/bin/sh
[ "$1" = --test-only ] && exit
echo "sbatch $@" >> "$LOG"
cat answer >&2 2>/dev/null && exit 1
echo 12
"""
SQUEUE = """#!/bin/sh
echo "squeue $@" >> "$LOG"
cat queue 2>/dev/null || true
"""
SCANCEL = """#!/bin/sh
echo "scancel $@" >> "$LOG"
rm -f queue
"""


@pytest.fixture
def undrawn() -> Iterator[None]:
    with blank_figures():
        yield


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    programs = tmp_path / "bin"
    programs.mkdir()
    texts = {"sbatch": SBATCH, "squeue": SQUEUE, "scancel": SCANCEL}
    for name, text in texts.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "tiny.yaml").write_text(SWEEP.replace("EPOCHS", "2"))
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(folder)
    (tmp_path / "log").touch()
    return folder
