"""What `make` would do: it checks Python first, installs what its target needs, and keeps results."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def make(*words: str) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(["make", *words], cwd=ROOT, env=own, capture_output=True, text=True, check=False)


def test_an_old_python_is_named_and_leaves_no_folder(tmp_path: Path) -> None:
    old = tmp_path / "python3.10"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    tried = make("demo", f"PYTHON={old}", f"VENV={tmp_path / 'venv'}")
    assert tried.returncode
    assert "needs Python 3.11 to 3.13" in tried.stderr
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize(("target", "extra"), [("demo", "sweep"), ("test", "dev")])
def test_a_target_installs_what_it_needs(target: str, extra: str, tmp_path: Path) -> None:
    assert f'-e ".[{extra}]"' in make("--dry-run", target, f"VENV={tmp_path}").stdout


def test_clean_keeps_the_results() -> None:
    assert make("--dry-run", "clean").stdout.split() == ["rm", "-rf", ".venv", "site"]
