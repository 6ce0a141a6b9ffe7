"""Every error is one line with its own exit status; a trace is shown only on request."""

import errno
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from goal_sweep.goal_core.basics.errors import GoalError, UnfinishedError
from goal_sweep.runners.cli import reports
from goal_sweep.runners.cli.app import app, run
from goal_sweep.runners.cli.options import SweepArguments
from goal_sweep.runners.cli.output import console
from tests.helpers.product import TINY


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nope", "No such command 'nope'"),
        ("launch", "Missing argument"),
        ("ui quickstart --port 0", "Invalid value for '--port'"),
        ("report quickstart --out s3://b/x", "give a path on this machine, got 's3://b/x'"),
        ("objectives --plot s3://b/x", "give a path on this machine"),
        ("launch quickstart --only-failed --retry-failed", "give --only-failed or --retry-failed"),
        ("launch quickstart --dry-run --tracking-uri ftp://x", "tracking 'ftp://x' is not supported"),
        ("launch nowhere.yaml", "nowhere.yaml"),
        ("launch quickstart --dry-run --address foo", "--address foo: give host:port"),
        ("launch quickstart --dry-run --address foo:99999", "--address foo:99999: give host:port"),
        ("plan quickstart --set data.root=gone", "--set data.root: dataset folder not found"),
        ("launch quickstart --set stages.frozen.epoch=2", "epoch: unknown key (did you mean 'epochs'?)"),
        ("launch quickstart --set objectives.only=[con/cos]", "con/cos"),
        (
            "launch quickstart --seeds +0",
            "write + and a number from 1 to 9999, such as +4 for four more seeds; got '+0'",
        ),
        ("plan quickstart --seeds 4", "got '4'"),
        ("report quickstart --seeds +x", "got '+x'"),
        ("launch quickstart --set stages.frozen.batch_size=40000", "--set stages.frozen.batch_size: must be at most "),
        ("plan quickstart --set stages.frozen.batch_size=40000", "--set stages.frozen.batch_size: must be at most "),
        ("validate quickstart --set name=..", "--set name: must match"),
        ("validate quickstart --set data.min_word_count=100000", "no word"),
    ],
)
def test_a_command_line_that_cannot_be_read_is_one_line(line: str, said: str, capsys, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(line.split()) == 2
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert said in printed.err


def test_what_is_wrong_with_the_data_is_said_where_the_sweep_names_them(tmp_path: Path, capsys) -> None:
    (tmp_path / "mine.yaml").write_text("extends: quickstart\nname: mine\ndata:\n  root: gone\n")
    convert = f"convert x.th --vocabulary v.txt --out {tmp_path}/x.safetensors --sweep"
    for command in ("plan", "validate", "status", "launch", convert):
        assert run([*command.split(), str(tmp_path / "mine.yaml")]) == 2
        said = capsys.readouterr().err
        assert said == f"error: {tmp_path}/mine.yaml:4: data.root: dataset folder not found: {tmp_path}/gone\n"


def test_few_test_images_are_told_before_training(capsys) -> None:
    for command in ("validate", "plan"):
        assert run([command, "quickstart+smoke"]) == 0
        assert "data: only 16 test images: the 95 % interval of a recall of 50 % is ± 24" in capsys.readouterr().out


def test_a_plan_says_that_the_disk_is_too_small(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goal_sweep.runners.cli.plan.disk_usage", lambda _: SimpleNamespace(free=2e6))
    assert run(["plan", "quickstart", "--store", str(tmp_path / "store")]) == 0
    assert f"warning: the disk of {tmp_path}/store has 0.0 GB free" in capsys.readouterr().out


@pytest.mark.parametrize("line", ["status quickstart", "logs quickstart", "plan quickstart", "validate quickstart"])
def test_looking_at_a_sweep_writes_nothing_where_it_is_looked_at(line: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(line.split()) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("line", ["", "data"])
def test_without_a_command_the_help_is_printed(line: str, capsys) -> None:
    assert run(line.split()) == 2
    printed = capsys.readouterr()
    assert "Usage: goal-sweep" in printed.out + printed.err
    assert "error" not in printed.err


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (GoalError("a setting is wrong"), 2, "error: a setting is wrong"),
        (OSError("no such device"), 2, "error: no such device (--debug shows where)"),
        (UnfinishedError("Ray is gone"), 75, "error: Ray is gone"),
        (KeyError("x"), 70, "internal error: KeyError: 'x' (--debug shows where)"),
        (RecursionError(), 70, "internal error: RecursionError: RecursionError (--debug shows where)"),
    ],
)
def test_an_error_has_its_status_and_a_trace_only_on_request(
    error: Exception, status: int, said: str, debug: bool, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SweepArguments, "open", Mock(side_effect=error))
    assert run(["status", "quickstart", *(["--debug"] if debug else [])]) == status
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == said
    assert (lines[0] == "Traceback (most recent call last):") is debug
    assert debug or len(lines) == 1


def test_the_environment_says_where_if_the_command_line_does_not(monkeypatch):
    """A container knows its cluster, store and tracking, so that nobody has to write them."""
    given = {"address": "head:6379", "store": "/goal/store", "tracking_uri": "http://mlflow:5000"}
    for name, value in given.items():
        monkeypatch.setenv(f"GOAL_SWEEP_{name.upper()}", value)
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    command = group.commands["launch"]
    params = command.make_context("launch", ["quickstart"]).params
    assert {name: params[name] for name in given} == given
    assert command.make_context("launch", ["quickstart", "--store", "here"]).params["store"] == "here"


def test_a_report_that_cannot_be_written_leaves_the_status_of_training(capsys, monkeypatch):
    """As on a full disk: trainings then end with `storage`, and the launch must not end as if it had been misused."""
    monkeypatch.setattr(reports, "report", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    progress = SimpleNamespace(digest=lambda: "")
    outcome = SimpleNamespace(progress=progress, found_nothing_to_do=False, is_tracked=True, status=1)
    monkeypatch.setattr("goal_sweep.runners.launch.launch.launch_sweep", lambda *arguments: outcome)
    monkeypatch.setattr(SweepArguments, "open", lambda self, **options: SimpleNamespace(config=None))
    assert run(["launch", "quickstart"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: no report: [Errno 28] No space left on device; afterwards: goal-sweep report")


def test_a_store_may_have_any_name(capsys) -> None:
    assert run(["status", "quickstart", "--store", "a 🐈/עברית"]) == 0
    assert "0 done" in capsys.readouterr().out


def test_names_in_messages_cannot_steer_the_terminal(capsys) -> None:
    assert run(["validate", "quickstart", "--set", "name=\x1b[2Jx"]) == 2
    assert "\x1b" not in capsys.readouterr().err
    console.print("an image \x1b]0;title\x07.jpg")
    assert "\x1b" not in capsys.readouterr().out


def test_what_would_fail_in_training_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("page.pth").write_text("<!doctype html><html></html>")
    weights = TINY.replace("EPOCHS", "2").replace("weights: random", "weights: page.pth")
    Path("mine.yaml").write_text(weights.replace("batch_size: 16", "batch_size: 999"))
    for command in ("validate", "launch"):
        assert run([command, "mine.yaml"]) == 2
        said = capsys.readouterr().err
        for one in ("mine.yaml:8: stages.frozen.batch_size", "stages.finetune.batch_size", "page.pth is a web page"):
            assert one in said
        assert not Path("goal-sweep-store/cells").exists()


def test_a_drawing_is_not_written_over_a_file(tmp_path: Path, capsys) -> None:
    (own := tmp_path / "triplet-weights.png").write_text("mine")
    assert run(["objectives", "--plot", str(tmp_path)]) == 2
    assert "triplet-weights.png is there already" in capsys.readouterr().err
    assert own.read_text() == "mine"
