"""Write the page of all commands from the command line itself: `python -m tests.commands_page > docs/options.md`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from goal_sweep.runners.cli.app import app

HEAD = """# Commands and options

Every command as `goal-sweep COMMAND --help` shows it. What holds for all of them: [commands.md](commands.md)."""
LEFT_OUT = ("--help", "--install-completion", "--show-completion")


def commands_page() -> str:
    """The page, in Markdown."""
    return "\n\n".join([HEAD, *_sections(get_command(app), None, "goal-sweep")])


def _sections(command: Any, above: Any, path: str) -> Iterator[str]:
    """A command's own section, and those of the commands below it."""
    context = command.context_class(command, info_name=path.split()[-1], parent=above)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    text, examples = re.sub(r"Example: .*", "", command.help), re.findall(r"Example: (.*)", command.help)
    records = [param.get_help_record(context) for param in command.get_params(context)]
    rows = [f"| `{_cell(name)}` | {_cell(text)} |" for name, text in filter(None, records) if name not in LEFT_OUT]
    table = ["\n".join(["| argument or option | meaning |", "| --- | --- |", *rows])] if rows else []
    shown = ["\n".join(["```", *examples, "```"])] if examples else []
    yield "\n\n".join([f"## {path}", text.strip(), f"`{usage}`", *table, *shown])
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from _sections(command.get_command(context, name), context, f"{path} {name}")


def _cell(text: str) -> str:
    """Text for one cell of a table: in one line, with commas for bars."""
    return " ".join(text.split()).replace("|", ", ")


if __name__ == "__main__":
    print(commands_page())
