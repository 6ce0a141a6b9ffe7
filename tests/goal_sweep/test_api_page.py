"""The page of the Python names is made from the docstrings: it has every public name, and none without its text."""

import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import goal_sweep

ROOT = Path(__file__).parents[2]
MODULES = ("objectives", "models", "data", "testing", "trackers")


@pytest.mark.exhaustive
@pytest.mark.skipif(find_spec("mkdocstrings") is None, reason="needs mkdocstrings")
def test_the_page_has_every_public_name(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True)
    page = (tmp_path / "api.html").read_text()
    names = {f"goal_sweep.{name}" for name in goal_sweep.__all__ if name not in (*MODULES, "GradientObjective")}
    for module in MODULES:
        of = import_module(f"goal_sweep.{module}")
        names |= {f"goal_sweep.{module}.{name}" for name in getattr(of, "__all__", ())}
    assert names - set(re.findall(r'id="([\w.]+)"', page)) == set()
    assert not re.search(r":(class|func|meth|attr):", page)
