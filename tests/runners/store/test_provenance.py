import json
import shutil
import subprocess
import zipfile

import pytest
from hatchling.builders.wheel import WheelBuilder

from goal_sweep.runners.store import provenance
from goal_sweep.runners.store.provenance import BUILT_FROM, built_from, checkout_state, gather
from tests.helpers.paths import ROOT


@pytest.fixture
def checkout(tmp_path):
    def git(*arguments):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=tmp_path, check=True)

    git("init", "-q")
    (tmp_path / "code.py").write_text("one\n")
    git("add", "code.py")
    git("commit", "-q", "-m", "x")
    return tmp_path


def test_a_checkout_has_a_commit_and_its_changes(checkout):
    commit, diff = checkout_state(checkout / "code.py")
    assert (len(commit), diff) == (40, "")
    (checkout / "code.py").write_text("two\n")
    _, diff = checkout_state(checkout / "code.py")
    assert "-one" in diff
    assert "+two" in diff


def test_a_file_that_git_does_not_track_is_not_of_that_checkout(checkout):
    """For example an installed package, in a virtual environment inside somebody's repository."""
    (checkout / "venv").mkdir()
    (checkout / "venv" / "code.py").touch()
    assert checkout_state(checkout / "venv" / "code.py") == ("", "")


def test_no_checkout_and_no_git(tmp_path, monkeypatch):
    (tmp_path / "code.py").touch()
    assert checkout_state(tmp_path / "code.py") == ("", "")
    monkeypatch.setenv("PATH", "")
    assert checkout_state(tmp_path / "code.py") == ("", "")


def test_a_long_diff_is_cut_and_its_digest_is_of_the_whole(monkeypatch):
    monkeypatch.setattr(provenance, "_checkout", lambda: ("c" * 40, "x" * 100_000))
    one = gather()
    monkeypatch.setattr(provenance, "_checkout", lambda: ("c" * 40, "x" * 100_001))
    two = gather()
    assert len(one.git_diff) < 61_000
    assert "100000 characters" in one.git_diff
    assert one.git_diff_sha256 != two.git_diff_sha256


def test_a_wheel_says_what_it_was_built_from(checkout, tmp_path):
    """Where the code runs from no checkout, its record says which one it came from."""
    assert built_from(tmp_path / BUILT_FROM) == ("", "")
    (tmp_path / BUILT_FROM).write_text('{"git_commit": "abc", "git_diff": "+x"}')
    assert built_from(tmp_path / BUILT_FROM) == ("abc", "+x")


@pytest.mark.parametrize("state", ["clean", "changed", "no checkout"])
def test_the_build_writes_that_record(tmp_path, monkeypatch, state):
    source = tmp_path / "source"
    names = "pyproject.toml hatch_build.py README.md LICENSE goal_sweep sweeps goal_core runners analysis".split()
    source.mkdir()
    for name in names:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, symlinks=True)
        else:
            shutil.copy(ROOT / name, source / name)
    monkeypatch.setenv("GOAL_GIT_COMMIT", "" if state != "no checkout" else "f" * 40)
    commit, diff = "f" * 40, ""
    if state != "no checkout":
        git = ["git", "-C", str(source), "-c", "user.name=a", "-c", "user.email=a@b"]
        for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
            subprocess.run([*git, *arguments], check=True)
        if state == "changed":
            (source / "runners" / "store" / "store.py").write_text("changed\n")
        commit, diff = checkout_state(source / "runners" / "store" / "provenance.py")
    (wheel,) = WheelBuilder(str(source)).build(directory=str(tmp_path))
    with zipfile.ZipFile(wheel) as file:
        record = json.loads(file.read(f"goal_sweep/runners/store/{BUILT_FROM}"))
    assert record == {"git_commit": commit, "git_diff": diff}
    assert ("+changed" in diff) == (state == "changed")
