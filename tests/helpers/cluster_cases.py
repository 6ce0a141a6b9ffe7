"""Jobs to render and submit, and a cluster's commands that only pretend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from goal_sweep.runners.cluster.backend import Completed, Job
from goal_sweep.runners.cluster.submission import sweep_text
from goal_sweep.runners.store.submissions import Submission
from goal_sweep.sweeps import load_for_cluster

SWEEP = {
    "name": "tiny",
    "data": {"format": "scenes"},
    "model": {"backbones": [{"name": "test_byobnet", "weights": "random"}]},
    "seeds": [1],
    "stages": [{"name": "frozen", "epochs": 1, "lr": 0.001, "warmup_epochs": 0}],
}


def job(tmp_path: Path, *overrides: str, store: Path = Path("/shared/store"), **more: Any) -> Job:
    """A job of a small sweep, with settings of its cluster as `--set` takes them, without `cluster.`."""
    sweep = tmp_path / "tiny.yaml"
    sweep.write_text(sweep_text(SWEEP))
    where = f"store={store}"
    loaded = load_for_cluster(sweep, [where, *(f"cluster.{one}" for one in overrides)], environ={})
    return Job(
        id="tiny-0a1b2c-1",
        config=loaded.config,
        cluster=loaded.cluster,
        sweep_text=sweep_text(loaded.plain),
        store=str(store),
        folder=store / "submissions" / "tiny-0a1b2c-1",
        working_dir=Path("/home/me"),
        code="0123456789abcdef",
        **more,
    )


def submission(to: str, job: str = "7", **place: str) -> Submission:
    return Submission(id="tiny-0a1b2c-1", sweep="tiny", to=to, job=job, place=place)


class Commands:
    """Answers a cluster's commands, and remembers them with their input.

    Args:
        answers: for the beginning of a command line, what the command answers; the first that fits counts.
        more: the same, for beginnings of one word.
    """

    def __init__(self, answers: Mapping[str, str | Completed] | None = None, **more: str | Completed) -> None:
        self.answers = {**(answers or {}), **more}
        self.given: list[tuple[str, str]] = []

    def __call__(self, command: Sequence[str], text: str) -> Completed:
        line = " ".join(command)
        self.given.append((line, text))
        for start, answer in self.answers.items():
            if line.startswith(start.replace("_", " ")):
                return Completed(command, 0, answer, "") if isinstance(answer, str) else answer
        return Completed(command, 1, "", f"{command[0]}: error: unexpected\n")


def refusal(said: str) -> Completed:
    return Completed([], 1, "", f"{said}\n")


def asked(folder: Path) -> list[str]:
    """The programs of Slurm that were called, by the log beside the folder."""
    return [line.split()[0] for line in (folder.parent / "log").read_text().splitlines()]


def everything(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its content."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
