"""The benchmarks run, name the machine, and need only goal_core's dependencies where they say so."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as entry
from benchmarks.recall import counted_ranks, numpy_recalls, sorted_ranks
from goal_core.evaluation import retrieval_metrics

ROOT = Path(entry.__file__).parents[1]
CORE = [name for name, one in entry.BENCHMARKS.items() if not one.needs and (ROOT / f"benchmarks/{name}.py").exists()]
FOREIGN = (
    *("ray", "mlflow", "pydantic", "pydantic_core", "ruamel", "typer", "rich", "psutil", "tenacity"),
    *("matplotlib", "jinja2", "scipy", "sklearn", "accelerate"),
)
"""What is not installed where only goal_core's dependencies are."""


def bare(tmp_path: Path, *words: str, timeout: float = 250.0) -> subprocess.CompletedProcess[str]:
    """Run Python, in which and in whose children these packages are missing."""
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({FOREIGN}))\n")
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, env=environ, cwd=ROOT, timeout=timeout
    )


@pytest.mark.slow
def test_the_benchmarks_of_goal_core_need_its_dependencies_alone(tmp_path: Path) -> None:
    assert len(CORE) >= 6
    done = bare(tmp_path, "-c", f"import {', '.join(f'benchmarks.{name}' for name in [*CORE, 'usual'])}; import ray")
    assert done.stderr.splitlines()[-1].startswith("ModuleNotFoundError: import of ray halted")


def test_what_is_missing_is_said_in_one_line(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)
    assert entry.main(["orchestration", "--quick"]) == 0
    title, line = capfd.readouterr().out.strip().splitlines()
    assert title.startswith("== orchestration: ")
    assert line == "left out: pydantic not installed"


def test_growth_and_the_gpu_are_asked_for() -> None:
    sharing = entry.BENCHMARKS["sharing"]
    assert entry.words(sharing, "cpu", quick=False) == ["--cells", "1", "2", "4", "8", "15", "45"]
    on_gpu = " ".join(entry.words(sharing, "cuda", quick=False))
    assert on_gpu.startswith("--cells 1 2 4 8 15 45 --device cuda --backbone resnet152 --size 224")
    assert "32768" in entry.words(entry.BENCHMARKS["objectives"], "cuda", quick=False)
    assert "--device" not in entry.words(entry.BENCHMARKS["orchestration"], "cuda", quick=False)


@pytest.mark.parametrize("name", ["objectives", "recall", "epochs", "verification"])
def test_quick_runs_name_the_machine_and_print_figures(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module(f"benchmarks.{name}")
    module.main(entry.words(entry.BENCHMARKS[name], "cpu", quick=True))
    out = capsys.readouterr().out
    assert re.search(r"^machine: .*cores of .*load .*; Python 3\.\d+\.\d+, torch \d", out, re.MULTILINE)
    assert len(re.findall(r"\d\.\d", out)) > 5


def test_recall_in_numpy_is_ours() -> None:
    import torch
    from torch.nn.functional import normalize

    images = normalize(torch.randn(20, 8, generator=torch.Generator().manual_seed(0)), dim=1)
    owners = torch.arange(20).repeat_interleave(5)
    noise = torch.randn(100, 8, generator=torch.Generator().manual_seed(1))
    texts = normalize(images[owners] + 0.5 * noise, dim=1)
    ours = retrieval_metrics(images, texts, owners)
    folds = retrieval_metrics(images, texts, owners, folds=5)
    wanted = [getattr(one, f"{way}_r{k}") for one in (ours, folds) for way in ("i2t", "t2i") for k in (1, 5, 10)]
    assert 0 < wanted[0] < 100
    for ranks in (sorted_ranks, counted_ranks):
        assert numpy_recalls(images.numpy(), texts.numpy(), ranks) == pytest.approx(wanted)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_all_benchmarks_run_without_what_goal_core_does_not_need(tmp_path: Path) -> None:
    done = bare(tmp_path, "-m", "benchmarks", "--quick", timeout=850.0)
    assert done.returncode == 0, done.stdout + done.stderr
    ran = re.findall(r"^== (\w+)", done.stdout, re.MULTILINE)
    assert set(ran) >= {*CORE, "orchestration", "report"}
    assert done.stdout.count("left out: ") == 3
    assert done.stdout.count("machine: ") >= len(CORE) - 1
