"""The `goal-sweep` command: all groups of commands, and the exit status.

Exit status: 0 done; 1 some cells failed, and nothing else; 2 bad usage or input; 70 an internal error, which is a bug;
75 stopped before the end by a signal, or because Ray or tracking is gone: the same command continues; 130 interrupted
by the user; 141 nobody reads the output any more.
"""

import contextlib
import os
import sys
import traceback
from importlib.metadata import version
from typing import Annotated, Any

import typer

from goal_sweep.goal_core.basics.errors import GoalError, UnfinishedError, first_line, printable
from goal_sweep.runners.cli.checkpoints import checkpoints
from goal_sweep.runners.cli.compare import comparing
from goal_sweep.runners.cli.data import data
from goal_sweep.runners.cli.jobs import submitting
from goal_sweep.runners.cli.launch import launching
from goal_sweep.runners.cli.listing import listing
from goal_sweep.runners.cli.plan import planning
from goal_sweep.runners.cli.results import results
from goal_sweep.runners.launch.signals import STOPPED, has_parent, own_status

app = typer.Typer(
    help="Train image-text retrieval models with every GOAL objective, and print the tables of a paper.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # which keeps brackets
)
for group in (launching, planning, submitting, results, comparing, listing, checkpoints):
    app.add_typer(group)
app.add_typer(data, name="data")
_USAGE, _BUG, _UNREAD = 2, 70, 141


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"goal-sweep {version('goal-sweep')}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where in the code an error arose; may also follow the command.")
    ] = False,
) -> None:
    pass


_UsageError: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")
"""Raised for an invalid command line: click's, or that of the copy of click in newer versions of typer."""


def run(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit status. A user's mistake is one message on stderr."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    given = [word for word in given if word != "--debug"]
    try:
        returned = app(given, standalone_mode=False, prog_name="goal-sweep")
        return returned if isinstance(returned, int) else 0
    except typer.Exit as leave:
        return int(leave.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except SystemExit as leave:  # of typer: 0 once it has installed the completion, else because a pipe is broken
        if leave.code and has_parent() and isinstance(leave.__context__, Exception):
            where = traceback.extract_tb(leave.__context__.__traceback__)[-1]
            print(f"a pipe of this launch broke ({where.filename}:{where.lineno} {where.name})", file=sys.stderr)
        return _UNREAD if leave.code else 0
    except _UsageError as error:
        said = error.format_message()
        if said:  # a command without its arguments has printed its help already, and has no message
            asked = f" (see {error.ctx.command_path} --help)" if getattr(error, "ctx", None) else ""
            print(f"error: {printable(said).rstrip('.').replace('Value error, ', '')}{asked}", file=sys.stderr)
        return _USAGE
    except Exception as error:
        if debug:
            traceback.print_exc()
        said, status = _explained(error)
        print(printable(said), file=sys.stderr)
        return status


def _explained(error: Exception) -> tuple[str, int]:
    """An error in one line, and its exit status."""
    if isinstance(error, GoalError):
        return f"error: {error}", STOPPED if isinstance(error, UnfinishedError) else _USAGE
    if isinstance(error, OSError):
        place = "" if error.filename is None else f"{error.filename}: "
        return f"error: {place}{first_line(error)} (--debug shows where)", _USAGE
    return f"internal error: {type(error).__name__}: {first_line(error)} (--debug shows where)", _BUG


def main() -> None:
    """Run the command line of this process, and end the process."""
    status = run()
    # A launch outlives its readers: another pipe of it has broken. Without its word, its parent says that it was ended.
    status = 1 if status == _UNREAD and has_parent() else own_status(status)
    if "ray" in sys.modules:
        # Ray's own work at exit waits for a head process that may be gone, and then ends the process with status 1.
        with contextlib.suppress(OSError):  # nobody may read any more
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
    sys.exit(status)
