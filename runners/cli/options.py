"""What the commands share: options, and the arguments that name a sweep."""

from __future__ import annotations

import json
import os
import shlex
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal
from urllib.parse import urlsplit
from urllib.request import getproxies

import typer

from goal_sweep.goal_core.basics.errors import CombinedError, ConfigError, GoalError
from goal_sweep.runners.cli import completion
from goal_sweep.runners.cli.output import progress_bar
from goal_sweep.runners.launch.opened import OpenedSweep, open_sweep
from goal_sweep.sweeps import load_sweep
from goal_sweep.sweeps.reading.changes import MORE_SEEDS
from goal_sweep.sweeps.reading.load import placed

_HUB_S = 3.0
"""Seconds within which the hub of weights takes a connection."""


def more_seeds(text: str) -> str:
    """Parse the number of further seeds."""
    if not MORE_SEEDS.fullmatch(text):
        raise typer.BadParameter(f"write + and a number from 1 to 9999, such as +4 for four more seeds; got {text!r}")
    return text


_SWEEP = "A sweep file, or the name of one that ships with goal-sweep."
Sweep = Annotated[str, typer.Argument(help=_SWEEP, autocompletion=completion.sweeps)]
Set = Annotated[list[str] | None, typer.Option("--set", help="Replace a setting: stages.frozen.epochs=2")]
StoreDir = Annotated[
    str | None,
    typer.Option("--store", envvar="GOAL_SWEEP_STORE", help="Results folder; default: that of the sweep file."),
]
Uri = Annotated[
    str | None,
    typer.Option(
        "--tracking-uri", envvar="GOAL_SWEEP_TRACKING_URI", help="MLflow tracking URI; default: that of the sweep."
    ),
]
Seeds = Annotated[
    str | None, typer.Option("--seeds", metavar="+N", parser=more_seeds, help="N more seeds than the sweep file names.")
]
Device = Annotated[Literal["cpu", "cuda"], typer.Option(help="Where to compute.")]
Scale = Literal["paper", "colour-blind"]
Trust = Annotated[
    bool, typer.Option("--trust-plugins", help="Run the plugins of a sweep that lies outside the current folder, too.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _ask_no_absent_hub() -> None:
    """Let weights come from caches alone where the hub does not answer: libraries would ask it for minutes."""
    hub = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    if "HF_HUB_OFFLINE" in os.environ or hub.scheme in getproxies():
        return
    try:
        socket.create_connection((str(hub.hostname), hub.port or 443), timeout=_HUB_S).close()
    except OSError:
        os.environ["HF_HUB_OFFLINE"] = "1"


@dataclass(frozen=True, slots=True)
class SweepArguments:
    """The arguments by which a command line names a sweep."""

    sweep: str
    set_: list[str] | None = None
    store: str | None = None
    tracking_uri: str | None = None
    trusted: bool = False
    """Whether plugins of a sweep outside the current folder run, too."""
    seeds: str | None = None
    """How many more seeds than the file names, such as ``+4``."""

    def open(self, *, renew: bool = False) -> OpenedSweep:
        """Open the sweep with its data and store.

        Args:
            renew: look at every image of the data, as a command does that trains; else the index is believed.
        """
        if renew:
            _ask_no_absent_hub()
        with progress_bar("reading") as count, self.placed():
            config = load_sweep(self.sweep, self.overrides, trusted=self.trusted)
            return open_sweep(config, renew=renew, progress=partial(count, "the data"))

    @contextmanager
    def placed(self) -> Iterator[None]:
        """Begin what is wrong with data or with a setting with the place in the sweep file."""
        try:
            yield
        except GoalError as error:
            errors = error.errors if isinstance(error, CombinedError) else [error]
            if not any(one.key for one in errors):
                raise
            raise GoalError("\n".join(map(self._told, errors))) from error

    def _told(self, error: GoalError) -> str:
        message = "; ".join(error.problems) if isinstance(error, ConfigError) else str(error)
        return self.place(error.key, message) if error.key else message

    def place(self, key: str, message: str) -> str:
        """A message about a setting, after the place in the sweep file."""
        return placed(self.sweep, self.overrides, key, message)

    @property
    def overrides(self) -> list[str]:
        """The options as ``key=value`` overrides."""
        places = {"store": self.store, "tracking.uri": self.tracking_uri}
        given = [f"{key}={json.dumps(place, ensure_ascii=False)}" for key, place in places.items() if place is not None]
        return [*(self.set_ or ()), *([f"seeds={self.seeds}"] if self.seeds else []), *given]

    def command(self, verb: str, *arguments: str, with_tracking: bool = False) -> str:
        """Write another command on the same sweep, as a user would type it.

        Args:
            with_tracking: whether the command accepts ``--tracking-uri``.
        """
        options = [word for text in self.set_ or () for word in ("--set", text)]
        if self.seeds and verb not in ("cancel", "ui"):  # which need no more than the sweep's name and places
            options += ["--seeds", self.seeds]
        options += ["--store", self.store] if self.store is not None else []
        options += ["--tracking-uri", self.tracking_uri] if with_tracking and self.tracking_uri is not None else []
        return shlex.join(["goal-sweep", verb, self.sweep, *arguments, *options])
