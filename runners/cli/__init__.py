"""The command line: parse, call, print, exit. The only room that knows all four packages."""

from runners.cli.app import main, run

__all__ = ["main", "run"]
