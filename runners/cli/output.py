"""What the commands write: to the terminal, and to files of this machine."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, TaskID

from goal_sweep.goal_core.basics.errors import printable

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


class _Console(Console):
    """Prints plain texts without the characters that steer a terminal, and breaks no line of them."""

    def print(self, *objects: Any, **options: Any) -> None:
        texts = [printable(one) if isinstance(one, str) else one for one in objects]
        super().print(*texts, **{"soft_wrap": all(isinstance(one, str) for one in objects)} | options)


console = _Console(highlight=False, markup=False)
_notes = Console(highlight=False, stderr=True)
"""For progress bars, which do not belong to the output of a command."""


@contextmanager
def progress_bar(doing: str) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar with a line for each part, of which it is told what is done of how much."""
    # Where the output is no terminal, a bar that ends leaves an empty line.
    with Progress(console=_notes, transient=True, disable=not _notes.is_interactive) as bar:
        tasks: dict[str, TaskID] = {}

        def count(part: str, done: int, total: int) -> None:
            if part not in tasks:
                tasks[part] = bar.add_task(f"{doing} {part}", total=total)
            bar.update(tasks[part], completed=done)

        yield count


def _local_path(text: str) -> Path:
    """Parse the path of an option that writes to this machine."""
    if _URI.match(text):
        raise typer.BadParameter(f"give a path on this machine, got {text!r}")
    return Path(text)


Output = partial(typer.Option, parser=_local_path)
"""An option with the path of what a command writes to this machine."""
Force = Annotated[bool, typer.Option("--force", help="Write over a file that is there.")]
