"""Plugins: Python files of the user's own that register parts, such as a pair weight.

What a plugin registers is read from its text, so that commands that train nothing know its names and ids without
running it. Its text travels with a unit to the machine that trains it.
"""

from __future__ import annotations

import ast
import hashlib
import linecache
import os
import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from goal_sweep.goal_core.basics.errors import ConfigError, DataError
from goal_sweep.goal_core.basics.registry import REGISTRIES, Entry, running
from goal_sweep.goal_core.basics.user_files import content_of, text_in

ENTRY_POINTS = "goal_sweep.plugins"
"""The group of entry points in which an installed package names its plugins."""
_ran: dict[str, str] = {}
"""The plugins that have run in this process: the digest of the text by name."""
_NAME, _RESERVED = re.compile(r"[\w.+-]+"), ("all", "loss")
"""What a part may be called: names are joined with `/` and listed with commas."""


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
        """The kinds of parts that it registers, such as `pair_weights`."""
        return {kind for _, kind, _ in self._registered()}

    def announce(self) -> None:
        """Make the names of its parts known without running it.

        Raises:
            PluginError: it is not Python, registers nothing, takes a name that is taken or is no word, or has a
                parameter whose default is not written out.
        """
        registered = list(self._registered())
        taken = set[tuple[str, str]]()
        for line, kind, entry in registered:
            if (kind, entry.name) in taken:
                self._refuse(f"{REGISTRIES[kind].kind} {entry.name!r} is registered twice here", line)
            if not _NAME.fullmatch(entry.name) or entry.name in _RESERVED:
                self._refuse(f"the name {entry.name!r} must be letters, digits and _ . + -, and not all or loss", line)
            taken.add((kind, entry.name))
            try:
                REGISTRIES[kind].announce(entry)
            except ValueError as error:
                self._refuse(str(error), line)
        if not registered:
            self._refuse(f"registers nothing; it needs @KIND.register(name), KIND one of {', '.join(REGISTRIES)}")

    def run(self) -> None:
        """Run it, so that its parts can be used. A second call does nothing.

        Raises:
            PluginError: it raises, registers what `announce` does not see, or changes how torch computes.
        """
        if _ran.get(self.name) == self.digest:
            return
        self.announce()
        file, module = f"<{self.name}>", ModuleType(f"goal_sweep_plugin_{self.digest}")
        linecache.cache[file] = (len(self.text), None, self.text.splitlines(keepends=True), file)  # for traces
        module.__file__ = self.name
        sys.modules[module.__name__] = module
        running.append(self.digest)
        before = _arithmetic()
        try:
            with no_end_at_once():
                exec(compile(self.text, file, "exec"), module.__dict__)
        except (Exception, SystemExit) as error:
            del sys.modules[module.__name__]
            lines = [frame.lineno or 0 for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
            self._refuse(f"{type(error).__name__}: {error}", (lines or [0])[-1])
        finally:
            running.pop()
        for setting, value in _arithmetic().items():
            if value != before[setting]:
                self._refuse(f"sets torch's {setting} to {value}, which would change the numbers of every cell")
        _ran[self.name] = self.digest

    def _registered(self) -> Iterator[tuple[int, str, Entry[Any]]]:
        """Each function that it registers by a decorator, as long as it has not run, with its line and kind."""
        try:
            tree = ast.parse(self.text)
        except (SyntaxError, ValueError) as error:
            self._refuse(str(getattr(error, "msg", error)), getattr(error, "lineno", None) or 0)
        for function in tree.body:
            if not isinstance(function, ast.FunctionDef | ast.ClassDef):
                continue
            for decorator in function.decorator_list:
                match decorator:
                    case ast.Call(
                        func=ast.Attribute(value=ast.Name(id=kind) | ast.Attribute(attr=kind), attr="register"),
                        args=[ast.Constant(value=str(name))],
                    ) if kind in REGISTRIES:
                        parameters, code = self._parameters(function), self.digest
                        entry = {"source": self.name, "plugin": self.name, "plugin_code": code}
                        yield function.lineno, kind, Entry(name=name, function=_not_run, parameters=parameters, **entry)

    def _parameters(self, function: ast.FunctionDef | ast.ClassDef) -> dict[str, Any]:
        """The keyword-only arguments of a function and their defaults."""
        if isinstance(function, ast.ClassDef):
            return {}
        found = {}
        for argument, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
            try:
                found[argument.arg] = ast.literal_eval(default)  # type: ignore[arg-type]  # None is refused below
            except (ValueError, TypeError):
                message = (
                    f"{function.name}: parameter {argument.arg!r} needs a number, text or truth value as its default"
                )
                self._refuse(message, argument.lineno)
        return found

    def _refuse(self, message: str, line: int = 0) -> NoReturn:
        place = f"{self.name}:{line}" if line else self.name
        raise PluginError(f"plugin {place}: {' '.join(message.split())}") from None


@contextmanager
def no_end_at_once() -> Iterator[None]:
    """Let `os._exit` raise like `exit` in this process, whose command would end with the plugin's status otherwise."""
    end, own = os._exit, os.getpid()

    def refuse(status: int) -> NoReturn:
        if os.getpid() != own:
            end(status)
        raise SystemExit(status)

    os._exit = refuse
    try:
        yield
    finally:
        os._exit = end


@contextmanager
def forgotten_after() -> Iterator[None]:
    """Let the parts that plugins announce meanwhile be unknown again, so that other plugins may use their names."""
    before = {kind: dict(registry) for kind, registry in REGISTRIES.items()}
    try:
        yield
    finally:
        for kind, registry in REGISTRIES.items():
            for name, entry in list(registry.items()):
                if entry.plugin and (here := before.get(kind, {}).get(name)) is not entry:
                    registry.pop(name) if here is None else registry.update({name: here})


def place_in(error: BaseException) -> str:
    """The plugin and line where an error was raised, as the beginning of a message; empty if it was none of theirs."""
    frames = ((frame.filename[1:-1], frame.lineno) for frame in traceback.extract_tb(error.__traceback__))
    return ([""] + [f"plugin {name}:{line}: " for name, line in frames if name in _ran])[-1]


@contextmanager
def exits_are_errors() -> Iterator[None]:
    """Where parts of a plugin are called: its `exit()` becomes an error, which fails a training and not a process.

    Raises:
        PluginError: it called `exit()`.
    """
    try:
        yield
    except SystemExit as error:
        if not (place := place_in(error)):
            raise  # a signal's
        raise PluginError(f"{place}SystemExit: {error}") from error


def _arithmetic() -> dict[str, object]:
    """The settings of torch that are the process's and decide what all cells compute."""
    import torch  # which reading a plugin does without

    return {
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "float32 matmul precision": torch.get_float32_matmul_precision(),
    }


def read_plugin(name: str, folder: Path) -> Plugin:
    """Read a plugin.

    Args:
        name: a path, relative to `folder`; or the name of a module that Python finds, or of an entry point of the group
            `goal_sweep.plugins` that an installed package declares. It is not run.
        folder: where relative paths start.

    Raises:
        PluginError: there is no such file or module, or it cannot be read.
    """
    if name.endswith(".py"):
        path = (folder / name).expanduser()
        name = str(path.resolve())
    else:
        declared = {one.name: one.module for one in entry_points(group=ENTRY_POINTS)}
        path = _module_file(declared.get(name, name))
    try:
        return Plugin(name=name, text=text_in(content_of(path), path).replace("\r\n", "\n"))  # ids as on Unix
    except DataError as error:
        raise PluginError(f"plugin {error}") from None


def run_plugins(names: Iterable[str]) -> None:
    """Run plugins by their names, relative to the current folder; names and errors as for :func:`read_plugin`."""
    for name in names:
        read_plugin(name, Path()).run()


def _module_file(name: str) -> Path:
    """The file of a module, which is found without importing it or its package."""
    first, *rest = name.split(".")
    for folder in sys.path:
        path = Path(folder or ".", first, *rest)
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return file
    raise PluginError(f"plugin {name}: no such module; a file's name ends in .py")


def _not_run(*_: object, **__: object) -> Any:
    """Stands for a function of a plugin that has not run."""
    raise ConfigError("this needs a plugin, which launch, validate, submit, plan --measure and --plugin run")
