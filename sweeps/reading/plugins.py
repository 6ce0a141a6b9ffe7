"""The plugins that a sweep names: their texts, and whether they may run."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from goal_core.basics.plugins import Plugin, PluginError, read_plugin
from sweeps.reading.tree import Node, Problem

Running = Literal["never", "own", "any"]
"""Which plugins run: none, so that only what they register is known; those of a sweep in the current folder or below;
or those of any sweep."""


def take_plugins(root: Node, file: Path, running: Running, problems: list[Problem]) -> Node:
    """Put the text of each plugin in the place of its name, make its parts known, and run it if it may.

    Args:
        root: the sweep file, after `extends` and `--set`.
        file: where it lies; plugins are named relative to its folder.
        running: which plugins run.
        problems: receives what is wrong with a plugin.

    Returns:
        The new tree.
    """
    listed = root.child("plugins")
    if listed is None or not isinstance(listed.value, list):
        return root  # the schema says what is wrong, as below
    items = []
    for node in listed.value:
        try:
            match node.plain():
                case str(name):
                    plugin = read_plugin(name, file.absolute().parent)
                case {"name": str(name), "text": str(text), **rest} if not rest:  # the sweep of a batch job
                    plugin = Plugin(name=name, text=text)
                case _:
                    return root
            plugin.announce()
            if running != "never":
                _check_own(file, running)
                plugin.run()
        except PluginError as error:
            problems.append(Problem(node.where, "plugins", str(error)))
        else:
            texts = {name: Node(getattr(plugin, name), node.where) for name in ("name", "text")}
            items.append(Node(dict(texts), node.where))
    return root.put(("plugins",), Node(items, listed.where))


def _check_own(file: Path, running: Running) -> None:
    """Check that a sweep's plugins may run.

    Raises:
        PluginError: the sweep may be somebody else's.
    """
    if running == "own" and not file.resolve().is_relative_to(Path.cwd().resolve()):
        raise PluginError(
            f"{file} lies outside the current folder, so its plugins do not run; --trust-plugins runs them"
        )
