"""Where `goal-sweep` begins, and `python -m runners.cli`, which batch jobs use: it needs no script on the path."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any, TextIO, cast

from runners.launch.signals import end_at_once, handle


class LastingOutput:
    """Output that goes on when nobody reads it any more: `goal-sweep launch | head -1`, or a closed terminal.

    Args:
        stream: the output, of which all but writing stays as it is.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text, or drop it."""
        try:
            return self._stream.write(text)
        except OSError as error:
            self._lost(error)
            return len(text)

    def flush(self) -> None:
        """Write what waits, or drop it."""
        try:
            self._stream.flush()
        except OSError as error:
            self._lost(error)

    def _lost(self, error: OSError) -> None:
        if error.errno in (errno.EPIPE, errno.EIO):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())
            os.close(null)


def main() -> None:
    """Run the command line. A launch trains to its end whoever reads, and answers signals before the libraries load."""
    if next((word for word in sys.argv[1:] if not word.startswith("-")), "") == "launch":
        handle(end_at_once)
        sys.stdout, sys.stderr = (cast(TextIO, LastingOutput(stream)) for stream in (sys.stdout, sys.stderr))
    from runners.cli.app import main

    main()


if __name__ == "__main__":
    main()
