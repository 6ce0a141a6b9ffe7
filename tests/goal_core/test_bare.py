"""The tests of goal_core, its GPU tests among them, need its dependencies and pytest alone."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.bare import bare_environ

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]  # each imports torch anew, which takes long on busy cores
ROOT = Path(__file__).parents[2]
PYTEST = ("-m", "pytest", "-q", "-W", "default", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib")


def run_bare(folder: Path, *words: str) -> str:
    environ = bare_environ(folder, ROOT, "hypothesis", "pytest_timeout", "xdist")
    command = [sys.executable, *PYTEST, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_gpu_test_is_collected(tmp_path: Path) -> None:
    files = (ROOT / "tests/goal_core").rglob("test_*.py")
    marked = sum(file.read_text().count("\n@pytest.mark.gpu\n") for file in files)
    out = run_bare(tmp_path, "--collect-only", "-m", "gpu", "tests/goal_core")
    assert len({line.partition("[")[0] for line in out.splitlines() if "::" in line}) == marked > 0


def test_tests_beside_those_of_a_gpu_run(tmp_path: Path) -> None:
    files = ("evaluation/test_retrieval.py", "objectives/test_stacked.py")
    out = run_bare(tmp_path, "-m", "not gpu and not exhaustive", *(f"tests/goal_core/{file}" for file in files))
    passed = re.search(r"(\d+) passed", out)
    assert passed is not None
    assert int(passed[1]) > 30
