from __future__ import annotations

import platform
import subprocess

import pytest

from runners.store import provenance
from runners.store.provenance import checkout_state, gather


@pytest.fixture
def checkout(tmp_path):
    def git(*arguments):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=tmp_path, check=True)

    git("init", "-q")
    (tmp_path / "code.py").write_text("one\n")
    git("add", "code.py")
    git("commit", "-q", "-m", "x")
    return tmp_path


def test_clean_checkout_has_a_commit_and_no_diff(checkout):
    commit, diff = checkout_state(checkout / "code.py")
    assert len(commit) == 40
    assert diff == ""


def test_changes_show(checkout):
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


def test_versions_and_device():
    found = gather()
    assert found.versions["python"] == platform.python_version()
    assert "torch" in found.versions
    assert found.device
