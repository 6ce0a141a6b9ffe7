"""Plugins: Python files of the user's own that register parts, such as a pair weight.

A plugin's text travels with a unit to the machine that trains it, and its hash is part of the ids that depend on it.
"""

from __future__ import annotations

import hashlib
import linecache
import sys
import traceback
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from goal_sweep.goal_core.basics.errors import ConfigError, DataError
from goal_sweep.goal_core.basics.registry import REGISTRIES, running
from goal_sweep.goal_core.basics.user_files import content_of, text_in

_ran: dict[str, str] = {}  # the digests of the plugins that have run in this process, by name


class PluginError(ConfigError):
    """A plugin is wrong; the message names it and the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A Python file that registers parts of one's own."""

    name: str
    """Its path, or its name as a module."""
    text: str
    """Its source, complete."""

    @property
    def digest(self) -> str:
        """Hash of its text, 12 hex digits: part of the id of each cell that uses one of its parts."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:12]

    @property
    def kinds(self) -> set[str]:
        """The kinds of parts that it has registered in this process, such as `pair_weights`."""
        code = self.digest
        return {kind for kind, parts in REGISTRIES.items() if any(one.plugin_code == code for one in parts.values())}

    def run(self) -> None:
        """Run it, so that its parts can be used. A second call does nothing; an edited text takes its names anew.

        A `PluginError` says if it raises, exits, registers nothing or a taken name, or changes how torch computes.
        """
        if _ran.get(self.name) == self.digest:
            return
        _ran.pop(self.name, None)
        for registry in REGISTRIES.values():
            for part in [part for part, entry in registry.items() if entry.plugin == self.name]:
                del registry[part]
        file, module, before = f"<{self.name}>", ModuleType(f"goal_sweep_plugin_{self.digest}"), _arithmetic()
        linecache.cache[file] = (len(self.text), None, self.text.splitlines(keepends=True), file)  # for traces
        sys.modules[module.__name__] = module
        running.append((self.name, self.digest))
        try:
            exec(compile(self.text, file, "exec"), module.__dict__)
            if not self.kinds:
                raise ValueError(f"registers nothing; it needs @KIND.register(name), KIND of {', '.join(REGISTRIES)}")
            if _arithmetic() != before:
                raise ValueError("changes torch's default dtype, device or precision, and so the numbers of every cell")
        except (Exception, SystemExit) as error:
            del sys.modules[module.__name__]
            lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
            line = error.lineno if isinstance(error, SyntaxError) else (lines or [None])[-1]
            said = " ".join(f"{type(error).__name__}: {error}".split())
            raise PluginError(f"plugin {self.name}{f':{line}' if line else ''}: {said}") from error
        finally:
            running.pop()
        _ran[self.name] = self.digest


def _arithmetic() -> tuple[object, ...]:
    """The settings of torch that are the process's and decide what all cells compute."""
    import torch  # which reading a plugin does without

    return torch.get_default_dtype(), torch.get_default_device(), torch.get_float32_matmul_precision()


def place_in(error: BaseException) -> str:
    """The plugin and line where an error was raised, as the beginning of a message; empty if it was none of theirs."""
    frames = ((frame.filename[1:-1], frame.lineno) for frame in traceback.extract_tb(error.__traceback__))
    return ([""] + [f"plugin {name}:{line}: " for name, line in frames if name in _ran])[-1]


def read_plugin(name: str, folder: Path) -> Plugin:
    """Read a plugin without running it; a `PluginError` where it is not there or cannot be read.

    Its name is a path, relative to the folder; or a module that Python finds, or an entry point of the group
    `goal_sweep.plugins` that an installed package declares.
    """
    if name.endswith(".py"):
        path = (folder / name).expanduser().resolve()
        name = str(path)
    else:
        declared = {one.name: one.module for one in entry_points(group="goal_sweep.plugins")}
        spec = None
        with suppress(ImportError, ValueError):
            spec = find_spec(declared.get(name, name))
        if spec is None or not spec.origin:
            raise PluginError(f"plugin {name}: no such module; a file's name ends in .py")
        path = Path(spec.origin)
    try:
        return Plugin(name=name, text=text_in(content_of(path), path).replace("\r\n", "\n"))  # ids as on Unix
    except DataError as error:
        raise PluginError(f"plugin {error}") from None


def run_plugins(names: Iterable[str]) -> None:
    """Run plugins by their names, relative to the current folder; names and errors as for :func:`read_plugin`."""
    for name in names:
        read_plugin(name, Path()).run()
