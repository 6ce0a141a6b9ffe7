"""The commands that read and carry results: `report`, `sync`, `export`, `import`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from goal_core.errors import GoalError
from runners.cli.options import Set, StoreDir, Sweep, Uri, console, open_sweep, overrides

if TYPE_CHECKING:
    from runners.cli.reporting import Scale

results = typer.Typer()


def _check(option: str, given: str | None, allowed: tuple[str | None, ...]) -> None:
    if given not in allowed:
        raise GoalError(f"{option} takes {' or '.join(f'`{name}`' for name in allowed if name)}, got {given!r}")


@results.command()
def report(
    sweeps: Annotated[
        list[str] | None, typer.Argument(metavar="SWEEP...", help="A sweep; further ones stand beside the first.")
    ] = None,
    set_: Set = None,
    store: StoreDir = None,
    tracking_uri: Uri = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the report.")] = None,
    compare: Annotated[str | None, typer.Option(help="`published`: beside the paper's numbers.")] = None,
    published: Annotated[str | None, typer.Option(help="`goal_grid`: the paper's own tables, without a sweep.")] = None,
    scale: Annotated[str, typer.Option(help="Colours of the tables: `paper` or `colour-blind`.")] = "paper",
) -> None:
    """Write tables, heatmaps, curves and statistics, and attach them to the sweep's MLflow run.

    Example: goal-sweep report quickstart.yaml --out report
    """
    from runners.cli import reporting

    for option, given, allowed in (
        ("--compare", compare, (None, "published")),
        ("--scale", scale, ("paper", "colour-blind")),
    ):
        if given not in allowed:
            raise GoalError(f"{option} takes {' or '.join(f'`{name}`' for name in allowed if name)}, got {given!r}")
    if published is not None:
        if sweeps or out is None:
            raise GoalError("--published takes --out and no sweep: it renders the paper's numbers alone")
        files = reporting.published(published, out, cast("Scale", scale))
        console.print(f"{len(files)} files in {out}", soft_wrap=True)
        return
    if not sweeps:
        raise GoalError("give a sweep, or --published goal_grid")
    places = reporting.places_of(sweeps, overrides(set_, store, tracking_uri))
    result = reporting.report(places, out, cast("Literal['published'] | None", compare), cast("Scale", scale))
    reporting.print_result(result, console)


@results.command()
def sync(sweep: Sweep, set_: Set = None, store: StoreDir = None, tracking_uri: Uri = None) -> None:
    """Rebuild the sweep's MLflow runs, their artifacts and the attached report from the store.

    Example: goal-sweep sync quickstart.yaml
    """
    from runners.cli import reporting
    from runners.tracking.sync import track

    study = open_sweep(sweep, set_, store, tracking_uri)
    with track(study, live=False, thorough=True) as tracking:
        tracking.sync_all(wait=600)
        if tracking.trouble:
            raise GoalError(tracking.trouble)
    attached = reporting.restore(reporting.ReportPlace.of(study.config))
    console.print(f"tracking is up to date{', and has the report' if attached else ''}")


@results.command("export")
def export_(
    sweep: Sweep,
    file: Annotated[Path, typer.Argument(help="The archive to write.")],
    set_: Set = None,
    store: StoreDir = None,
) -> None:
    """Write a sweep's finished results, without weights, to one file.

    Example: goal-sweep export quickstart.yaml quickstart.zip
    """
    from runners.store.archive import export_results

    done, asked = export_results(open_sweep(sweep, set_, store, None), file)
    left = f"; {asked - done} are not finished and not in it" if done < asked else ""
    console.print(f"{file}: {done} of {asked} results{left}", soft_wrap=True)


@results.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="An archive that `export` wrote.")],
    store: Annotated[str, typer.Option("--store", help="Results folder to add to.")] = "./goal-sweep-store",
    tracking_uri: Uri = None,
) -> None:
    """Add an archive's results to a results folder and to MLflow. Needs neither the data nor the weights.

    Example: goal-sweep import quickstart.zip --store results
    """
    from runners.cli.import_archive import import_archive

    for line in import_archive(file, store, tracking_uri):
        console.print(line, soft_wrap=True)
