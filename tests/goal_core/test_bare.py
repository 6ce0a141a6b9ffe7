"""The tests of goal_core, its GPU tests among them, need its dependencies and pytest alone."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.bare import bare_environ

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]  # each imports torch anew, which takes long on busy cores
ROOT = Path(__file__).parents[2]
RUN = """
import sys, pytest
common = ["-q", "-W", "default", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib"]
for words in (COLLECTED, RUN):
    print("status", int(pytest.main([*common, *words])))
"""
COLLECTED = ["--collect-only", "-m", "gpu", "tests/goal_core"]
BESIDE = ["evaluation/test_retrieval.py", "objectives/test_stacked.py"]


@pytest.mark.exhaustive
def test_every_gpu_test_is_collected_and_tests_beside_them_run(tmp_path: Path) -> None:
    files = (ROOT / "tests/goal_core").rglob("test_*.py")
    marked = sum(file.read_text().count("\n@pytest.mark.gpu\n") for file in files)
    run = ["-m", "not gpu and not exhaustive", *(f"tests/goal_core/{file}" for file in BESIDE)]
    code = RUN.replace("COLLECTED", repr(COLLECTED)).replace("RUN", repr(run))
    environ = bare_environ(tmp_path, ROOT, "hypothesis", "pytest_timeout", "xdist")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environ, cwd=ROOT
    )
    collected, ran, end = done.stdout.split("status 0\n")
    assert not end, done.stdout + done.stderr
    assert len({line.partition("[")[0] for line in collected.splitlines() if "::" in line}) == marked > 0
    passed = re.search(r"(\d+) passed", ran)
    assert passed is not None
    assert int(passed[1]) > 30
