"""Where `goal-sweep` begins, and `python -m goal_sweep.runners.cli`, by which batch jobs do without a script."""

import io
import os
import sys
from typing import Any, TextIO

from goal_sweep.runners.launch.signals import end_with_parent, has_parent, own_status, watch_over


class LastingOutput(io.FileIO):
    """A file for output that goes on when it is lost: `goal-sweep launch | head -1`, a closed terminal, a full disk."""

    @classmethod
    def of(cls, stream: TextIO) -> TextIO:
        """Write to the place of a stream, as lines."""
        file = io.BufferedWriter(cls(stream.fileno(), "w", closefd=False))
        return io.TextIOWrapper(file, errors=stream.errors, line_buffering=True)

    def write(self, content: Any) -> int:
        """Write, or drop what cannot be written."""
        try:
            return super().write(content)
        except OSError:
            return memoryview(content).nbytes


def open_closed() -> None:
    """Send what whoever started this has closed to nowhere; the next files opened would get its numbers, and output."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdout, sys.stderr = sys.stdout or open(1, "w"), sys.stderr or open(2, "w")


def main() -> None:
    """Run the command line. A launch trains to its end whoever reads, and answers signals before the libraries load."""
    open_closed()
    if os.environ.get("COLUMNS") == "0":  # rich would print lines of no width
        del os.environ["COLUMNS"]
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # signs that the terminal's encoding lacks
    try:
        os.getcwd()
        if next((word for word in sys.argv[1:] if not word.startswith("-")), "") == "launch":
            from goal_sweep.runners.launch.signals import end_at_once, handle

            if not has_parent():  # -P: a module of the current folder must not hide one of Python's
                sys.exit(watch_over([sys.executable, "-P", "-m", "goal_sweep.runners.cli", *sys.argv[1:]]))
            end_with_parent()
            handle(end_at_once)
            sys.stdout, sys.stderr = map(LastingOutput.of, (sys.stdout, sys.stderr))
        from goal_sweep.runners.cli.app import main
    except ModuleNotFoundError as error:
        if (error.name or "goal_sweep").startswith("goal_sweep"):
            raise
        lacking = f"the command line needs {error.name}: pip install 'goal-sweep[sweep]'"
    except FileNotFoundError:
        lacking = "the current folder is gone; change to another one"
    else:
        main()
        return
    print(f"error: {lacking}", file=sys.stderr)
    sys.exit(own_status(2))


if __name__ == "__main__":
    main()
