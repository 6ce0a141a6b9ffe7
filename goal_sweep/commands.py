"""The commands `launch`, `validate`, `plan`, `status` and `report` as functions, for a script or a notebook.

Settings, variables, checks and results are those of the command line. Wrong input raises `GoalError`.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from goal_sweep.frame import place_of
from goal_sweep.goal_core.basics.errors import GoalError, UnfinishedError
from goal_sweep.runners.launch.signals import INTERRUPTED, STOPPED

warnings.filterwarnings("ignore", message="IProgress not found")  # tqdm's, of bars that nothing here shows
if TYPE_CHECKING:
    from goal_sweep.runners.cli.options import SweepArguments
    from goal_sweep.sweep_result import SweepResult

_LOOK_S = 1.0
"""Seconds between two looks at the store while a notebook shows a launch."""
_WIDTH = 100
"""Columns of that grid."""
_FAILED, _USAGE = 1, 2


class Lines(list[str]):
    """Lines, which show themselves as a command prints them."""

    def __repr__(self) -> str:
        return "\n".join(self)


class Plan(dict[str, Any]):
    """A plan, which shows itself as the command prints it."""

    def __init__(self, found: dict[str, Any], text: str) -> None:
        super().__init__(found)
        self._text = text

    def __repr__(self) -> str:
        return self._text


def launch(
    sweep: str | os.PathLike[str],
    *,
    set: Sequence[str] = (),
    seeds: str | None = None,
    store: str | os.PathLike[str] | None = None,
    tracking_uri: str | None = None,
    address: str | None = None,
    retry_failed: bool = False,
    only_failed: bool = False,
    fail_fast: bool = False,
    trust_plugins: bool = False,
) -> SweepResult:
    """Train what a sweep lacks, write its report, and return its results.

    The launch is a process of its own, so that neither Ray nor its end touches this one. A terminal shows it as the
    command does; a notebook shows the grid, which fills. Ctrl-C, or the notebook's interrupt, lets the trainings save
    and returns what there is; the same call continues.

    Args:
        sweep: the sweep file, or the name of one that ships.
        set: settings to replace, such as ``["seeds=[1,2]", "stages.frozen.epochs=2"]``.
        seeds: more seeds than the file names, such as ``"+4"``.
        store: the results folder; by default that of the sweep file.
        tracking_uri: MLflow's; by default that of the sweep file.
        address: the Ray cluster to train on, ``host:port`` of its head, or ``auto``; by default this machine.
        retry_failed: also train failed cells again.
        only_failed: train failed cells again, and nothing else.
        fail_fast: stop at the first failed cell.
        trust_plugins: run the plugins of a sweep that lies outside the current folder, too.

    Raises:
        GoalError: the sweep, its data or its weights are wrong; as `UnfinishedError`, the launch was stopped before
            its end by a signal, or because Ray or tracking is gone.
    """
    arguments = _arguments(sweep, set, store, tracking_uri, seeds=seeds, trust_plugins=trust_plugins)
    flags = {"--retry-failed": retry_failed, "--only-failed": only_failed, "--fail-fast": fail_fast}
    options = [name for name, wanted in (flags | {"--trust-plugins": trust_plugins}).items() if wanted]
    options += [] if address is None else ["--address", address]
    ipython = sys.modules.get("IPython")  # a notebook has loaded it
    show = _grid(arguments) if ipython is not None and hasattr(ipython.get_ipython(), "kernel") else None
    words = shlex.split(arguments.command("launch", *options, with_tracking=True))
    status, said = _run([sys.executable, "-P", "-m", "goal_sweep.runners.cli", *words[1:]], show)
    if status == _USAGE:
        raise GoalError(said.removeprefix("error: "))
    if status == STOPPED:
        raise UnfinishedError(f"{said}\nthe same call continues".strip())
    if status not in (0, _FAILED, INTERRUPTED):
        raise RuntimeError(f"the launch ended with status {status}: {said}")
    if status == _FAILED:
        warnings.warn(f"some cells failed: {arguments.command('logs', '--failed')}", stacklevel=2)
    return _result(arguments, status=status)


def validate(sweep: str | os.PathLike[str], *, set: Sequence[str] = (), trust_plugins: bool = False) -> Lines:
    """Check a sweep file, its data and its weights without training. Returns what `goal-sweep validate` prints.

    Raises:
        GoalError: something is wrong; the message names the place in the file.
    """
    import torch  # noqa: F401 - weights are checked in this process: another would begin by running the script again

    from goal_sweep.runners.cli.launch import validated

    return Lines(validated(_arguments(sweep, set, trust_plugins=trust_plugins)))


def plan(
    sweep: str | os.PathLike[str],
    *,
    set: Sequence[str] = (),
    seeds: str | None = None,
    store: str | os.PathLike[str] | None = None,
    measure: bool = False,
    gpu_record: str | os.PathLike[str] | None = None,
    devices: int | None = None,
    trust_plugins: bool = False,
) -> Plan:
    """What `goal-sweep plan --json` says: cells, steps, disk, memory and device hours of each stage, None if not known.

    It shows itself as the text of `goal-sweep plan`.

    Arguments that `launch` has are as there.

    Args:
        measure: train a few steps of each kind of unit on this machine, for the time; in processes of their own, so
            that a script calls it below ``if __name__ == "__main__":``.
        gpu_record: ``gpu.json`` of ``make gpu``, for the time of the models in it.
        devices: how many to plan for; by default those of this machine.

    Raises:
        GoalError: the sweep, its data or its weights are wrong.
    """
    import torch  # noqa: F401 - as in `validate`

    from goal_sweep.runners.cli.plan import plan_of, plan_text, planned

    resolved = planned(_arguments(sweep, set, store, seeds=seeds, trust_plugins=trust_plugins), measure=measure)
    found = plan_of(resolved, devices, None if gpu_record is None else Path(gpu_record), measure=measure)
    return Plan(found, plan_text(resolved, found))


def status(
    sweep: str | os.PathLike[str],
    *,
    set: Sequence[str] = (),
    seeds: str | None = None,
    store: str | os.PathLike[str] | None = None,
) -> pd.DataFrame:
    """How far every training of a sweep is now: a row for each, with what `goal-sweep status --json` says of it.

    Raises:
        GoalError: the sweep or its data are wrong.
    """
    from goal_sweep.runners.cli.launch import status_rows

    return pd.DataFrame([row | row.pop("test") for row in status_rows(_arguments(sweep, set, store, seeds=seeds))])


def report(
    sweep: str | os.PathLike[str],
    *,
    set: Sequence[str] = (),
    seeds: str | None = None,
    store: str | os.PathLike[str] | None = None,
    tracking_uri: str | None = None,
    out: str | os.PathLike[str] | None = None,
    compare: Literal["published"] | None = None,
    scale: Literal["paper", "colour-blind"] = "paper",
) -> SweepResult:
    """Write the report of a sweep, attach it to its MLflow run if that can answer, and return its results.

    Arguments that `launch` has are as there.

    Args:
        out: folder of the report; by default in the store.
        compare: compare with the paper's numbers.
        scale: the colours of the tables.

    Raises:
        GoalError: there are no results, or the report cannot be written.
    """
    from goal_sweep.runners.cli import reports

    arguments = _arguments(sweep, set, store, tracking_uri, seeds=seeds)
    result = _result(arguments, None if out is None else Path(out))
    reports.report(result.target, result.folder, compare, scale)
    return result


def _arguments(
    sweep: str | os.PathLike[str],
    set_: Sequence[str] = (),
    store: str | os.PathLike[str] | None = None,
    tracking_uri: str | None = None,
    *,
    seeds: str | None = None,
    trust_plugins: bool = False,
) -> SweepArguments:
    if isinstance(set_, str):
        raise GoalError(f"set must be a list of settings, such as [{set_!r}]")
    from goal_sweep.runners.cli.options import SweepArguments

    place, uri = place_of(store), tracking_uri or os.environ.get("GOAL_SWEEP_TRACKING_URI") or None
    return SweepArguments(os.fspath(sweep), [*set_], place, uri, trust_plugins, seeds)


def _result(arguments: SweepArguments, out: Path | None = None, *, status: int = 0) -> SweepResult:
    from goal_sweep.runners.cli.reports import report_target
    from goal_sweep.sweep_result import SweepResult

    target = report_target(arguments.sweep, arguments.overrides)
    return SweepResult(target=target, folder=out or target.folder, status=status)


def _grid(arguments: SweepArguments) -> Callable[[], None]:
    """Show the grid of a sweep in the notebook. Returns what draws it anew from the store."""
    from io import StringIO

    from IPython.display import HTML, display
    from rich.console import Console

    from goal_sweep.runners.launch.view import overview

    opened = arguments.open()  # with its index, so that the launch reads the data no second time
    page = '<pre style="line-height: 1.2; font-family: monospace; white-space: pre; overflow-x: auto">{code}</pre>'

    def drawn() -> HTML:
        console = Console(record=True, file=StringIO(), width=_WIDTH, force_jupyter=False, color_system="truecolor")
        console.print(overview(opened.searched().progress(), opened.config.name, width=_WIDTH))
        return HTML(console.export_html(code_format=page, inline_styles=True))

    handle = display(drawn(), display_id=True)
    return lambda: handle.update(drawn())


def _run(command: list[str], show: Callable[[], None] | None) -> tuple[int, str]:
    """Run a launch, drawing it if it is to be shown. Returns its exit status, and the errors it ended with."""
    output = None if show is None else subprocess.DEVNULL  # the report's addresses, which the result has
    colours = () if show is None else ("FORCE_COLOR", "CLICOLOR_FORCE")  # of a kernel, which shows no bar
    environment = {name: value for name, value in os.environ.items() if name not in colours}
    pipe: dict[str, Any] = {"stderr": subprocess.PIPE, "text": True, "errors": "replace"}
    child = subprocess.Popen(command, stdout=output, env=environment, **pipe)
    errors: list[str] = []

    def read() -> None:
        assert child.stderr is not None
        for line in child.stderr:
            errors.append(line.rstrip())
            if line.strip() and not any(one.startswith("error: ") for one in errors):  # an exception says those
                print(line, end="", file=sys.stderr, flush=True)

    reader = threading.Thread(target=read, name="goal-sweep launch", daemon=True)
    reader.start()
    while (status := child.returncode) is None:
        try:
            with suppress(subprocess.TimeoutExpired):
                child.wait(_LOOK_S)
            if show is not None:
                with suppress(GoalError, OSError):  # a store that cannot be read for a moment
                    show()
        except KeyboardInterrupt:  # the launch takes it as one wish if the terminal has sent it, too
            child.send_signal(signal.SIGINT)
    reader.join(_LOOK_S)
    at = next((n for n, line in enumerate(errors) if line.startswith("error: ")), -1)
    return status, "\n".join(errors[at:] if at >= 0 else errors[-5:])
