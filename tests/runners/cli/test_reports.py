"""One sweep in several results folders: the report and the frame show the union of its finished trainings."""

import json
from pathlib import Path

import pytest

import goal_sweep
from goal_sweep.runners.cli.app import run
from goal_sweep.runners.results import ResultsTable
from goal_sweep.sweeps.results import RESULTS_FILE
from tests.helpers.blank_figures import blank_figures
from tests.helpers.results_cases import SweepWriter, recalls


def stored(folder: Path, seeds: tuple[int, ...]) -> Path:
    """A store with the results table of a sweep named like the folder above it."""
    writer = SweepWriter("shared", seeds=seeds, objectives=("con/con", "sig/cir"))
    for objective in writer.objectives:
        for seed in seeds:
            writer.write(objective, seed, metrics=recalls(objective, seed), checkpoint="cells/c/best")
    table = folder / "sweeps" / "shared" / RESULTS_FILE
    table.parent.mkdir(parents=True)
    table.write_bytes(ResultsTable.of(writer.header(), writer.table()).content)
    return folder


def test_two_stores_are_reported_as_one(tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shared.yaml").write_text("extends: quickstart\nname: shared\n")
    one, two = stored(tmp_path / "a", (1, 2)), stored(tmp_path / "b", (2, 3))
    with blank_figures():
        assert run(["report", "shared.yaml", "--store", str(one), "--store", str(two), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["expected"], told["counted"], told["seeds"]) == (6, 6, [1, 2, 3])
    assert {cell["n"] for cell in told["cells"]} == {3}
    assert Path(told["report"]) == Path("shared-report/report.html")  # it belongs to neither store
    Path("shared-report/report.json").write_text("")
    with blank_figures():
        assert run(["report", "shared.yaml", "--store", str(one), "--store", str(two)]) == 0
    frame = goal_sweep.results("shared.yaml", store=[one, two])
    assert frame["training"].is_unique
    assert frame.set_index("seed")["checkpoint"][3].tolist() == [str(two / "cells/c/best")] * 2
