"""What the commands share: options, the console, and how a sweep is opened."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console

console = Console(highlight=False)

Sweep = Annotated[str, typer.Argument(help="A sweep file, or the name of one that ships with goal-sweep.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="Replace a setting: stages.frozen.epochs=2")]
StoreDir = Annotated[str | None, typer.Option("--store", help="Results folder, instead of the sweep file's.")]
Uri = Annotated[str | None, typer.Option("--tracking-uri", help="MLflow tracking URI, instead of the sweep file's.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def open_sweep(sweep: str, set_: list[str] | None, store: str | None, uri: str | None) -> Any:
    """The sweep with its data and store, as `runners.launch.opened_sweep.OpenedSweep`."""
    from runners.launch.opened_sweep import open_sweep_file

    return open_sweep_file(sweep, overrides=set_ or (), store=store, tracking_uri=uri)


def overrides(set_: list[str] | None, store: str | None, uri: str | None) -> list[str]:
    """The options as ``key=value`` settings."""
    places = [f"{key}={json.dumps(value)}" for key, value in (("store", store), ("tracking", uri)) if value is not None]
    return [*(set_ or ()), *places]
