"""`goal-sweep objectives`: the table, the JSON and the figures."""

import json
from pathlib import Path

import pytest

from goal_sweep.goal_core.objectives import list_objectives
from goal_sweep.runners.cli.app import run
from tests.helpers.blank_figures import blank_figures


def test_every_objective_is_listed_with_whether_it_has_a_loss(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["objectives", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [f"{row['pair']}/{row['triplet']}" for row in rows] == [info.name for info in list_objectives()]
    assert {f"{row['pair']}/{row['triplet']}" for row in rows if row["loss"]["paper"]} == {
        *("con/con", "con/nca", "lin/cir")
    }
    assert run(["objectives"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(rows) + 2  # headings, and the baselines
    assert all(len(line) <= 80 for line in lines)
    assert any(line.split()[0] == "sig-ms/cir" and line.split()[-3:] == ["no"] * 3 for line in lines)


def test_the_figures_are_drawn_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with blank_figures():  # tests/analysis/figures looks at what they show
        assert run(["objectives", "--plot", str(tmp_path / "new")]) == 0
    names = ["triplet-weights.png", "pair-weights.png", "gradient-fields.png"]
    assert [Path(line).name for line in capsys.readouterr().out.splitlines()] == names
    assert all((tmp_path / "new" / name).read_bytes().startswith(b"\x89PNG") for name in names)


def test_the_schema_is_json_or_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema"]) == 0
    assert "stages" in json.loads(capsys.readouterr().out)["properties"]
    assert run(["schema", "--markdown"]) == 0
    assert "| `stages.lr` |" in capsys.readouterr().out
