"""The command line: parse, call, print, exit. Only this room imports all four packages, and no other imports it."""

from runners.cli.app import main, run

__all__ = ["main", "run"]
