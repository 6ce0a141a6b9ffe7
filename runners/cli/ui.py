"""The command `ui`: MLflow's web page for a sweep."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from typing import Annotated

import typer

from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.runners.cli.options import Set, StoreDir, Sweep, SweepArguments, Uri, console
from goal_sweep.runners.store import Store
from goal_sweep.runners.tracking.uri import read_only, require_database

page = typer.Typer()


@page.command()
def ui(
    sweep: Sweep,
    set_: Set = None,
    store: StoreDir = None,
    tracking_uri: Uri = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on this machine.")] = 5000,
) -> None:
    """Open MLflow's web page for the sweep's runs, and print its address (Ctrl-C ends it).

    Example: goal-sweep ui quickstart.yaml --port 5001
    """
    from goal_sweep.runners.cli.reports import report_target

    target = report_target(sweep, SweepArguments(sweep, set_, store, tracking_uri).overrides)
    if target.uri.startswith(("http://", "https://")):
        console.print(page_link(target.uri, target.config.name, target.uri.rstrip("/")))
        return
    Store(target.config.store)  # refuses one of another version, whose runs the page would show wrongly
    require_database(target.uri)
    if why := read_only(target.uri):
        raise GoalError(f"{why}; the page writes to it, so copy the results folder and give the copy with --store")
    _require_free(port)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # so that the server ends with this process
    address = f"http://127.0.0.1:{port}"
    with _server(target.uri, port) as server:
        console.print("MLflow's server starts; Ctrl-C ends it")
        link = page_link(target.uri, target.config.name, address)  # computed meanwhile
        _wait_until_it_answers(server, address)
        console.print(f"{address}  ({target.uri})\n{link}")
        raise typer.Exit(server.wait())


def page_link(uri: str, sweep: str, server: str) -> str:
    """Where an MLflow server, given by its address, shows the sweep's runs, or why it does not."""
    from goal_sweep.runners.tracking.experiment import SweepPage
    from goal_sweep.runners.tracking.uri import TrackingError

    try:
        page = SweepPage(uri, sweep)
    except TrackingError as error:
        return f"no runs yet: {error}"
    runs = f"mlflow.search_runs(experiment_names=[{sweep!r}], filter_string=\"tags.`goal.role` = 'report'\")"
    python = f"mlflow.set_tracking_uri({server!r}); {runs}"
    return f"{page.address_at(server)}\nin Python: {python}"


@contextlib.contextmanager
def _server(uri: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri]
    command += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1", "--uvicorn-opts", "--log-level warning"]
    # Jobs evaluate language models; without them the server starts sooner and has no process but this one.
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "PYTHONWARNINGS": "ignore"}
    environment = os.environ | quiet | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    server = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        yield server
    finally:
        with contextlib.suppress(ProcessLookupError):  # the database bears that its readers are killed
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _require_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise GoalError(f"port {port} cannot be used ({error}); choose another with --port") from error


def _wait_until_it_answers(server: subprocess.Popen[bytes], address: str) -> None:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while server.poll() is None:
        try:
            with direct.open(f"{address}/health", timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    raise GoalError(f"the MLflow server ended at once with status {server.returncode}")
