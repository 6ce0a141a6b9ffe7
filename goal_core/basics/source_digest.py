"""The digest of a function's code, with all that it calls and reads outside of the installed libraries."""

from __future__ import annotations

import ast
import dis
import functools
import hashlib
import inspect
import io
import pickle
import sys
import sysconfig
import textwrap
import tokenize
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from goal_core.basics.errors import ConfigError

_LIBRARIES = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


@functools.cache
def source_digest(function: Callable[..., Any]) -> str:
    """Hash the code of a function, so that a result can be told from one of the same name and other code.

    The functions, classes and constants that the function uses count with it, in whatever module they are defined. Not
    counted are installed libraries and other modules of `goal_core`, whose versions are recorded elsewhere, nor
    comments, docstrings, decorators and blank lines.

    Returns:
        12 hex digits.

    Raises:
        ConfigError: the function uses an object whose value cannot be hashed.
    """
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    digest = hashlib.sha256()
    try:
        texts = sorted(_Reader(inner.__module__).read(function, ""))
    except RecursionError as error:
        raise ConfigError(f"the code of an objective ({inner.__module__}) uses a value that contains itself") from error
    for text in texts:
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()[:12]


class _Reader:
    """Reads a value and all that it uses; functions, classes and modules once each."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._seen: set[int] = set()

    def read(self, value: Any, name: str) -> Iterator[str]:
        """Texts that change with the code or the value, in any order. ``name`` is what the reader's code calls it."""
        if isinstance(value, (FunctionType, type, ModuleType)):
            if id(value) not in self._seen:
                self._seen.add(id(value))
                yield from self._definition(value)
        elif isinstance(value, (staticmethod, classmethod)) or hasattr(value, "__wrapped__"):
            yield from self.read(value.__wrapped__, name)
        elif isinstance(value, functools.partial):
            yield from self.read([value.func, value.args, value.keywords], name)
        elif isinstance(value, MethodType):
            yield from self.read([value.__func__, value.__self__], name)
        elif isinstance(value, Mapping):
            for key in sorted(value, key=repr):
                yield from self.read(value[key], f"{name}[{key!r}]")
        elif isinstance(value, (list, tuple)):
            for number, item in enumerate(value):
                yield from self.read(item, f"{name}[{number}]")
        elif isinstance(value, (set, frozenset)):
            yield f"{name} = {sorted(map(repr, value))}"
        elif isinstance(value, BuiltinFunctionType):
            yield f"{name} = {value.__qualname__}"
        elif isinstance(value, (bool, int, float, complex, str, bytes, type(None))):
            yield f"{name} = {value!r}"
        elif isinstance(value, np.ndarray) or _is_tensor(value):
            array = value if isinstance(value, np.ndarray) else value.detach().cpu().numpy()
            yield f"{name} = {value.dtype} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"
        elif self._counts(type(value).__module__) and hasattr(value, "__dict__"):
            yield from self.read([type(value), vars(value)], name)
        elif not type(value).__module__.startswith("goal_core"):
            yield f"{name} = {_pickled(value, name)}"

    def _definition(self, value: FunctionType | type | ModuleType) -> Iterator[str]:
        counts = self._counts(value.__name__ if isinstance(value, ModuleType) else value.__module__)
        if isinstance(value, FunctionType):
            yield from self._function(value, counts)
        elif counts and isinstance(value, ModuleType):
            yield Path(str(value.__file__)).read_text(errors="replace")
            for part in vars(value).values():
                if isinstance(part, (FunctionType, type, ModuleType)):
                    yield from self.read(part, "")
        elif counts and isinstance(value, type):
            yield _source(value)
            for part in [*value.__bases__, *vars(value).values()]:
                if isinstance(part, (FunctionType, type, staticmethod, classmethod)):
                    yield from self.read(part, "")

    def _function(self, function: FunctionType, counts: bool) -> Iterator[str]:
        code = function.__code__
        if counts:
            yield _source(function)
            for name in _global_names(code) & function.__globals__.keys():
                yield from self.read(function.__globals__[name], name)
            yield from self.read([function.__defaults__, function.__kwdefaults__], "default")
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            # A library's decorator does not count, but the function in it does.
            if counts or isinstance(cell.cell_contents, FunctionType):
                yield from self.read(cell.cell_contents, name)

    def _counts(self, module: str) -> bool:
        if module == self._module:
            return True
        file = getattr(sys.modules.get(module), "__file__", None)
        if file is None or module.partition(".")[0] == "goal_core":
            return False
        return not any(Path(file).is_relative_to(library) for library in _LIBRARIES)


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")  # where it is not loaded, nothing is a tensor
    return torch is not None and isinstance(value, torch.Tensor)


def _global_names(code: CodeType) -> set[str]:
    """The global names that a function reads, also within its lambdas, comprehensions and inner functions."""
    names = {str(step.argval) for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return names.union(*map(_global_names, inner))


def _bytecode(code: CodeType) -> str:
    inner = [_bytecode(value) if isinstance(value, CodeType) else repr(value) for value in code.co_consts]
    return repr((code.co_code, inner, code.co_names))


def _pickled(value: Any, name: str) -> str:
    try:
        return hashlib.sha256(pickle.dumps(value, protocol=4)).hexdigest()
    except Exception as error:
        kind = type(value).__name__
        raise ConfigError(
            f"the code of an objective uses {name}, a {kind} that cannot be hashed ({error}), so results of different "
            "code could not be told apart; use a constant or a function of the same module instead"
        ) from error


def _source(value: FunctionType | type) -> str:
    """The source lines that compute something, or the bytecode of a function whose source cannot be read."""
    try:
        source = textwrap.dedent(inspect.getsource(value if isinstance(value, type) else value.__code__))
        definition = ast.parse(source).body[0]
    except (OSError, TypeError, SyntaxError):  # typed into an interpreter, or a lambda within an expression
        if isinstance(value, type):
            return value.__qualname__
        return _bytecode(value.__code__)
    lines = source.splitlines()
    for (first, start), (last, end) in _prose(source, definition):
        kept = lines[last - 1].encode()[end:].decode()
        lines[first - 1] = lines[first - 1].encode()[:start].decode()
        for row in range(first, last):
            lines[row] = ""
        lines[last - 1] += kept
    return "\n".join(line.rstrip() for line in lines[definition.lineno - 1 :] if line.strip())


def _prose(source: str, definition: ast.stmt) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Where comments and docstrings begin and end: pairs of (line from 1, column in bytes), the last first."""
    places = []
    rows = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            places.append(((row, len(rows[row - 1][:column].encode())), (row, len(rows[row - 1].encode()))))
    for node in ast.walk(definition):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node) is not None:
            text = node.body[0]
            places.append(((text.lineno, text.col_offset), (text.end_lineno or 0, text.end_col_offset or 0)))
    return iter(sorted(places, reverse=True))
