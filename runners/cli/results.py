"""The commands that read results and keep them in order: `report`, `card`, `sync`, `gc`, `ui`."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer

from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.goal_core.basics.files import new_file
from goal_sweep.runners.cli import completion, options
from goal_sweep.runners.cli.options import AsJson, Scale, Seeds, Set, StoreDir, Sweep, SweepArguments, Uri
from goal_sweep.runners.cli.output import Force, Output, console
from goal_sweep.runners.store import Store
from goal_sweep.runners.store.garbage import find_garbage, remove_garbage
from goal_sweep.runners.tracking.uri import TrackingError, read_only, require_database
from goal_sweep.sweeps import load_sweep

results = typer.Typer()


@results.command()
def report(
    sweep: Sweep,
    set_: Set = None,
    seeds: Seeds = None,
    store: StoreDir = None,
    tracking_uri: Uri = None,
    out: Annotated[Path | None, Output(help="Folder of the report.")] = None,
    compare: Annotated[Literal["published"] | None, typer.Option(help="Compare with the paper's numbers.")] = None,
    scale: Annotated[Scale, typer.Option(help="Colours of the tables.")] = "paper",
    as_json: AsJson = False,
) -> None:
    """Write the tables, heatmaps, learning curves and statistics, and attach them to the sweep's MLflow run.

    Example: goal-sweep report quickstart.yaml --out report
    """
    from goal_sweep.runners.cli import reports

    arguments = SweepArguments(sweep, set_, store, tracking_uri, seeds=seeds)
    target = reports.report_target(sweep, arguments.overrides)
    result, why = reports.report(target, out, compare, scale)
    warned = reports.warnings(target, result.inputs.results)
    if as_json:
        print(json.dumps({**result.as_json(), "warnings": warned}, indent=2))
        return
    reports.print_result(result, console, reports.settling(target, result, arguments))
    for line in warned:
        print(f"warning: {line}", file=sys.stderr)
    if why:
        console.print(f"        not attached to MLflow: {why}")


@results.command()
def card(
    sweep: Sweep,
    objective: Annotated[
        str, typer.Argument(help="Its best model with this one.", autocompletion=completion.objectives)
    ] = "",
    set_: Set = None,
    store: StoreDir = None,
    tracking_uri: Uri = None,
    out: Annotated[Path | None, Output(help="Write it here, not to the terminal.")] = None,
    push: Annotated[
        str, typer.Option(metavar="ORG/NAME", help="Upload model and card to this repository on the Hugging Face hub.")
    ] = "",
    private: Annotated[bool, typer.Option("--private", help="Let nobody else see what --push uploads.")] = False,
    license_: Annotated[
        str, typer.Option("--license", help="The licence that --push states, as the hub names it: apache-2.0")
    ] = "",
    force: Force = False,
    trust_plugins: options.Trust = False,
) -> None:
    """Write the model card of the sweep's best model on val: data, objective, settings, mean and spread over seeds.

    Example: goal-sweep card quickstart.yaml --out README.md

    Example: goal-sweep card quickstart.yaml --push my-org/emoji-retrieval --private
    """
    from goal_sweep.analysis.report.pages import model_card
    from goal_sweep.runners.cli.models import trained_results

    if push.count("/") != bool(push) or (out and push) or ((private or license_) and not push):
        raise GoalError("give --push ORG/NAME, perhaps with --private and --license, or --out FILE")
    arguments = SweepArguments(sweep, set_, store, tracking_uri)
    config = load_sweep(sweep, arguments.overrides, trusted=trust_plugins)
    found = trained_results(config, arguments)
    if push:
        from goal_sweep.runners.cli import hub

        own = Store(config.store)
        console.print(hub.push(found, own, push, objective, licence=license_, private=private, force=force))
        return
    text = model_card(found, objective)
    if out is None:
        print(text, end="")
    else:
        new_file(out, force=force).write_text(text)
        console.print(str(out))


@results.command()
def sync(
    sweep: Sweep,
    set_: Set = None,
    seeds: Seeds = None,
    store: StoreDir = None,
    tracking_uri: Uri = None,
    rewrite: Annotated[bool, typer.Option("--rewrite", help="Delete the sweep's runs and write all anew.")] = False,
) -> None:
    """Write to MLflow what is missing there: runs, the results table, and the report. The store has everything.

    Example: goal-sweep sync quickstart.yaml
    """
    from goal_sweep.analysis.report.folder import REPORT_LIST, files_of_report
    from goal_sweep.runners.cli.reports import ReportTarget
    from goal_sweep.runners.results import lost_results, read_results, update_results
    from goal_sweep.runners.tracking.experiment import SweepPage, told
    from goal_sweep.runners.tracking.mlflow_tracker import MlflowTracker

    opened = SweepArguments(sweep, set_, store, tracking_uri, seeds=seeds).open()
    target = ReportTarget(config=opened.config)
    if why := read_only(target.uri):
        raise TrackingError(why)
    if lost := lost_results(read_results(opened.store, opened.config.name), opened):
        raise GoalError(
            f"{lost} finished trainings of {opened.config.name} are not among those of these settings, and would leave "
            "the results table: give the file and the settings of the last launch, or launch these"
        )
    opened.store.prepare()
    table = update_results(opened.store, opened)
    with told("cannot write tracking"):
        tracker = MlflowTracker(target.uri, opened.config.name, live=False)
        if rewrite:
            tracker.remove_all()
        tracker.catch_up(table)
        tracker.finish(table)
    if has_report := (target.folder / REPORT_LIST).is_file():
        SweepPage(target.uri, opened.config.name).attach_report(target.folder, files_of_report(target.folder))
    console.print(f"tracking is up to date{', and has the report' if has_report else ''}")


@results.command()
def gc(
    sweep: Sweep,
    set_: Set = None,
    seeds: Seeds = None,
    store: StoreDir = None,
    delete: Annotated[bool, typer.Option("--delete", help="Remove what is listed.")] = False,
    as_json: AsJson = False,
) -> None:
    """List what a sweep's results keep although nobody needs it, with sizes; remove it with --delete.

    That is: the states of finished trainings, what interrupted writes left, and cached features if every training in
    the store is finished. Weights and results stay, and so does everything that a launch would continue from.

    Example: goal-sweep gc quickstart.yaml
    """
    from rich.filesize import decimal

    arguments = SweepArguments(sweep, set_, store, seeds=seeds)
    opened = arguments.open()
    found = (remove_garbage if delete else find_garbage)(opened.store, opened.trainings)
    if as_json:
        rows = [
            {"kind": one.kind, "what": one.what, "bytes": one.bytes, "files": [*map(one.storage.shown, one.files)]}
            for one in found
        ]
        print(json.dumps({"removed": delete, "garbage": rows}, indent=2))
        return
    for one in found:
        console.print(f"{decimal(one.bytes):>10}  {len(one.files):4d} files  {one.kind}: {one.what}")
    total = f"{decimal(sum(one.bytes for one in found))} in {sum(len(one.files) for one in found)} files"
    if delete or not found:
        console.print(f"{total} removed" if found else "nothing to remove")
    else:
        console.print(f"{total} can be removed: {arguments.command('gc', '--delete')}")


@results.command()
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
    print("starting; Ctrl-C ends it", file=sys.stderr)
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
        link = page_link(target.uri, target.config.name, address)  # computed meanwhile
        _wait_until_it_answers(server, address)
        console.print(f"{address}  ({target.uri})\n{link}")
        raise typer.Exit(server.wait())


def page_link(uri: str, sweep: str, server: str) -> str:
    """Where an MLflow server, given by its address, shows the sweep's runs, or why it does not."""
    from goal_sweep.runners.tracking.experiment import SweepPage

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
