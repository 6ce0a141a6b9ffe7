"""One run proves a GPU: steps in processes of their own, of which none hides another."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu
from benchmarks.gpu import Step, main
from benchmarks.program import ROOT
from tests.helpers.bare import bare_environ

pytestmark = pytest.mark.timeout(1200)  # each step imports torch anew, which takes long on busy cores
SLEEPER = """
import argparse, json, signal, subprocess, sys
from pathlib import Path
parser = argparse.ArgumentParser()
for name in ("device", "json", "children"):
    parser.add_argument(f"--{name}")
given = parser.parse_args()
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
Path(given.children).write_text(f"{child.pid}")
Path(given.json).write_text(json.dumps({"tables": {"rows": {"first": {"ms": 1.5}}}}))
signal.pause()
"""
FAILING = """
from benchmarks.program import Report, parse
report = Report(parse(None, {}).json)
report.row("rows", "good", lambda: {"ms": 2.5})
report.row("rows", "bad", lambda: {"ms": 1 / 0})
raise SystemExit(1)
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs that steps can run as benchmarks."""
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    for name, code in (("sleeper", SLEEPER), ("failing", FAILING)):
        (folder / f"{name}.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{tmp_path}")  # a namespace package has parts in both
    return folder


def run_steps(out: Path, *steps: Step, deadline: float = 1000.0) -> tuple[int, dict[str, Any]]:
    status = main(["--out", str(out), "--device", "cpu", "--deadline", str(deadline)], steps=steps)
    return status, json.loads((out / "gpu.json").read_text())


@pytest.mark.exhaustive
def test_a_failing_step_hides_no_other(programs: Path, tmp_path: Path) -> None:
    good = Step("good", "a good one", "benchmarks.ratios", full="--batch 16 --dim 8 --images 50 --rounds 1")
    status, found = run_steps(tmp_path / "out", Step("bad", "a bad one", "benchmarks.failing"), good)
    assert status == 1
    bad = found["steps"]["bad"]
    assert (bad["status"], bad["tables"]) == ("failed", {"rows": {"good": {"ms": 2.5}}})
    assert bad["reason"] == "rows, bad: ZeroDivisionError: division by zero"
    assert bad["errors"][-1] == "ZeroDivisionError: division by zero"
    assert found["steps"]["good"]["status"] == "done"


@pytest.mark.exhaustive
def test_a_late_step_ends_with_all_that_it_started(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gpu, "CPU_PATIENCE", 1)
    children = tmp_path / "children"
    sleeper = Step("late", "a late one", "benchmarks.sleeper", full=f"--children {children}", limit=15)
    status, found = run_steps(tmp_path / "out", sleeper, Step("bad", "a bad one", "benchmarks.failing"))
    assert status == 1
    late = found["steps"]["late"]
    assert (late["status"], late["reason"]) == ("late", "ended after 15 s, its limit")
    assert late["tables"] == {"rows": {"first": {"ms": 1.5}}}
    assert any("sleeper.py" in line for line in late["errors"])  # where it was
    child = Path("/proc", children.read_text())
    assert not child.exists() or "Z (zombie)" in (child / "status").read_text()
    assert found["steps"]["bad"]["tables"]  # the next one ran


def test_the_deadline_shortens_a_step_and_leaves_out_the_next(programs: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(gpu, "LEAST_S", 1.0)
    sleeper = Step("late", "a late one", "benchmarks.sleeper", full=f"--children {tmp_path / 'children'}")
    _, found = run_steps(tmp_path / "out", sleeper, Step("bad", "a bad one", "benchmarks.failing"), deadline=1.5)
    assert found["steps"]["late"]["reason"].endswith("the deadline")
    assert found["steps"]["bad"] == {"status": "left out", "reason": "0 s were left of the deadline", "seconds": 0.0}


@pytest.mark.exhaustive
@pytest.mark.timeout(3000)
def test_a_bare_checkout_proves_itself(tmp_path: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("needs a git checkout")
    checkout, out = tmp_path / "checkout", tmp_path / "out"
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).exists():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, checkout / name, follow_symlinks=False)
    environ = bare_environ(tmp_path, checkout, "hypothesis", "pytest_timeout")
    options = "GPU=--device cpu --quick --deadline 2500"
    command = ["make", "gpu", f"PYTHON={sys.executable}", f"OUT={out}", options]
    done = subprocess.run(command, cwd=checkout, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = json.loads((out / "gpu.json").read_text())
    assert {name: step["status"] for name, step in found["steps"].items()} == {step.name: "done" for step in gpu.STEPS}
    tests = (ROOT / "tests" / "goal_core").rglob("test_*.py")
    marked = sum(file.read_text().count("\n@pytest.mark.gpu\n") for file in tests)
    assert int(re.findall(r"(\d+) skipped", found["steps"]["tests"]["said"][-1])[0]) >= marked > 0
    steps = [found["steps"][step]["tables"] for step in ("finetune", "float32", "frozen")]
    wanted = [[["compiled", "finetune", "channels-first"]], [["finetune"]] * 2, [["one", "heads"]]]
    assert [[list(rows) for rows in tables.values()] for tables in steps] == wanted
    assert all(row["ms a step"] > 0 for tables in steps for rows in tables.values() for row in rows.values())
