"""The command `gc`: a list with sizes, and nothing removed without --delete."""

import json

import pytest

from goal_sweep.runners.cli.app import run
from goal_sweep.runners.cli.output import console
from tests.helpers.results_folder import arguments
from tests.helpers.store_cases import claimed, train
from tests.helpers.sweep_cases import opened_in


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A finished training whose state was left."""
    sweep = opened_in(tmp_path / "store")
    training = train(claimed(sweep.store.folder(sweep.trainings[0])))
    (training.folder / "last.safetensors").write_bytes(b"x" * 2_000_000)
    monkeypatch.setattr("goal_sweep.runners.cli.options.open_sweep", lambda *given, **options: sweep)
    return tmp_path / "store"


def test_it_lists_first_and_removes_when_told(folder, capsys, monkeypatch):
    monkeypatch.setattr(console, "width", 200)
    (state,) = folder.rglob("last.safetensors")
    assert run(arguments("gc", folder)) == 0
    listed = capsys.readouterr().out
    assert "2.0 MB     1 files  states: con/con" in listed
    assert "2.0 MB in 1 files can be removed: goal-sweep gc " in listed
    assert state.exists()
    assert run(arguments("gc", folder, "--delete", "--json")) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["removed"] is True
    assert answer["garbage"][0]["files"] == [str(state)]
    assert not state.exists()
    assert run(arguments("gc", folder)) == 0
    assert capsys.readouterr().out == "nothing to remove\n"
