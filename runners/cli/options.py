"""What the commands share: options, the console, and how a command names its sweep."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from runners.launch.opened_sweep import OpenedSweep

console = Console(highlight=False)
notes = Console(highlight=False, stderr=True)
"""For progress bars, which are no part of a command's answer."""

Sweep = Annotated[str, typer.Argument(help="A sweep file, or the name of one that ships with goal-sweep.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="Replace a setting: stages.frozen.epochs=2")]
StoreDir = Annotated[str | None, typer.Option("--store", help="Results folder, instead of the sweep file's.")]
Uri = Annotated[str | None, typer.Option("--tracking-uri", help="MLflow tracking URI, instead of the sweep file's.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True, slots=True)
class SweepArguments:
    """A sweep as the command line names it."""

    sweep: str
    set_: list[str] | None = None
    store: str | None = None
    tracking_uri: str | None = None

    def open(self) -> OpenedSweep:
        """The sweep with its data and store."""
        from runners.launch.opened_sweep import open_sweep

        return open_sweep(self.sweep, self.overrides)

    @property
    def overrides(self) -> list[str]:
        """The options as ``key=value`` settings."""
        places = {"store": self.store, "tracking": self.tracking_uri}
        given = [f"{key}={json.dumps(place)}" for key, place in places.items() if place is not None]
        return [*(self.set_ or ()), *given]

    def command(self, verb: str, *arguments: str, with_tracking: bool = False) -> str:
        """Another command on the same sweep, as a user would type it.

        Args:
            verb: such as ``logs``.
            arguments: what follows the sweep.
            with_tracking: whether that command takes ``--tracking-uri``.
        """
        options = [word for text in self.set_ or () for word in ("--set", text)]
        options += ["--store", self.store] if self.store is not None else []
        options += ["--tracking-uri", self.tracking_uri] if with_tracking and self.tracking_uri is not None else []
        return shlex.join(["goal-sweep", verb, self.sweep, *arguments, *options])
