"""The benchmarks run, and need only goal_core's dependencies where they say so."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as index
from benchmarks.program import parse
from tests.helpers.bare import bare_environ

ROOT = Path(index.__file__).parents[1]
pytestmark = pytest.mark.timeout(1200)  # each step imports torch anew, which takes long on busy cores
CORE = [step for step in index.STEPS if not step.needs]


def run_bare(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python where only goal_core's dependencies are."""
    environ = bare_environ(folder, ROOT)
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, env=environ, cwd=ROOT)


@pytest.mark.slow
def test_the_benchmarks_of_goal_core_need_its_dependencies_alone(tmp_path: Path) -> None:
    modules = [path.stem for path in (ROOT / "benchmarks").glob("*.py") if path.stem not in ("orchestration", "report")]
    assert {step.module for step in CORE} < set(modules)
    done = run_bare(tmp_path, "-c", f"import {', '.join(f'benchmarks.{name}' for name in modules)}; import pydantic")
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'pydantic'"


def test_what_needs_more_is_left_out_and_says_why(tmp_path: Path) -> None:
    done = run_bare(tmp_path, "-m", "benchmarks", "--quick", "orchestration", "report")
    assert done.returncode == 0
    assert "orchestration: left out pydantic, ruamel, ray, mlflow, rich not installed" in done.stdout
    assert "report: left out mlflow, matplotlib, jinja2, scipy not installed" in done.stdout


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        index.main(["sharing", "nothing"])
    error = capsys.readouterr().err
    assert "there is no benchmark nothing" in error
    assert all(step.name in error for step in index.STEPS)


@pytest.mark.parametrize("step", [*index.STEPS], ids=lambda step: step.name)
def test_arguments_are_those_of_the_programs(step: index.Step) -> None:
    options = importlib.import_module(f"benchmarks.{step.module}").OPTIONS
    for arguments in (step.quick, f"{step.full} {step.cuda}"):
        given = parse(None, options, arguments.split())
        assert set(vars(given)) == {*options, "device", "json"}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["sharing", "finetune", "orchestration", "report"])
def test_those_that_prove_no_gpu_run_and_find_figures(name: str, tmp_path: Path) -> None:
    assert index.main(["--quick", "--out", str(tmp_path), name]) == 0
    tables = json.loads((tmp_path / "gpu.json").read_text())["steps"][name]["tables"]
    figures = [value for rows in tables.values() for row in rows.values() for value in row.values()]
    assert len(figures) >= 4
    assert all(value >= 0 for value in figures)
    assert f"| {name} | done |" in (tmp_path / "gpu.md").read_text()
