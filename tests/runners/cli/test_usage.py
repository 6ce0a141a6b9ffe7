"""An invalid command line gives one line and exit status 2, without a trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.cli.app import run


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nope", "No such command 'nope'"),
        ("launch quickstart --bogus", "No such option: --bogus"),
        ("launch", "Missing argument"),
        ("ui quickstart --port abc", "Invalid value for '--port'"),
        ("ui quickstart --port 0", "Invalid value for '--port'"),
        ("report", "give a sweep"),
        ("report --published goal_grid --out s3://b/x", "give a path on this machine, got 's3://b/x'"),
        ("report --published goal_grid --out /proc/x", "/proc/x"),
        ("objectives --plot s3://b/x", "give a path on this machine"),
        ("launch quickstart --only-failed --force", "give --only-failed without --retry-failed and --force"),
        ("launch quickstart --dry-run --tracking-uri ftp://x", "tracking 'ftp://x' is not supported"),
        ("launch nowhere.yaml", "nowhere.yaml"),
        ("launch quickstart --set stages.frozen.epoch=2", "epoch: unknown key (did you mean 'epochs'?)"),
        ("launch quickstart --set objectives.only=[con/cos]", "con/cos"),
        (
            "launch quickstart --set stages.frozen.batch_size=4000",
            "batch_size must be at most 2000, the number of captions",
        ),
        ("validate quickstart --set name=..", "name may contain"),
        ("validate quickstart --set data.num_train=10000000", "num_train must be at most 1,000,000"),
        ("validate quickstart --set data.min_word_count=100000", "no word"),
    ],
)
def test_a_command_line_that_cannot_be_read_is_one_line(
    line: str, said: str, capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(line.split()) == 2
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert said in printed.err


@pytest.mark.parametrize("line", ["", "data"])
def test_without_a_command_the_help_is_printed(line: str, capsys) -> None:
    assert run(line.split()) == 2
    printed = capsys.readouterr()
    assert "Usage: goal-sweep" in printed.out + printed.err
    assert "error" not in printed.err


def test_the_version_is_printed(capsys) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("goal-sweep 0.")
