"""Every GPU test is recorded as it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.program import ROOT

SOME = """
import pytest
pytestmark = pytest.mark.gpu
def test_good(): pass
def test_bad(): assert 1 == 2, "not so"
@pytest.mark.skip(reason="needs two CUDA devices")
def test_two(): pass
"""


def test_a_test_that_crashes_hides_none_before_it(tmp_path: Path) -> None:
    folder, saved = tmp_path / "some", tmp_path / "found.json"
    folder.mkdir()
    (folder / "test_a.py").write_text(SOME)
    (folder / "test_b.py").write_text("import nowhere_at_all")
    (folder / "test_c.py").write_text(
        "import os, pytest\n@pytest.mark.gpu\ndef test_crash(): os._exit(3)\ndef test_other(): pass"
    )
    command = [sys.executable, "-m", "benchmarks.gpu_tests", "--tests", str(folder), "--json", str(saved)]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 3
    found = json.loads(saved.read_text())
    assert found["tables"]["GPU tests"] == {str(folder): {"passed": 1, "failed": 2, "skipped": 1}}
    failed = {name.rpartition("/")[2]: why for name, why in found["failed"].items()}
    assert failed["test_a.py::test_bad"].startswith("AssertionError: not so")
    assert "nowhere_at_all" in failed["test_b.py"]
    assert failed["test_c.py::test_crash"] == "did not end"
