"""What of the code is part of a cell's id: the version of the arithmetic, and the source of added functions."""

from __future__ import annotations

import ast
import hashlib
import inspect
import io
import textwrap
import tokenize
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

NUMERICS_VERSION = 1
"""Part of every cell id. Raise it with a change that moves the numbers a cell ends with although its settings stay the
same (initialisation, sampling order, augmentation, an objective's formula, the optimiser); results trained before are
then no longer taken for the new ones. A change that only moves speed, memory or logging leaves it alone."""

BUILT_IN_CODE = frozenset(
    {
        # Pair weights: con, lin, sig, lin-ms, sig-ms.
        *("afab18872d13", "77fb17148cb8", "f9dfc9406cb7", "843c8d95ab10", "fca9e3ca4eab"),
        # Triplet weights: con, nca, cir.
        *("a0e074880da8", "eda1abad089a", "9178a30a3f01"),
    }
)
"""Digests (`source_digest`) of the registered functions that `NUMERICS_VERSION` speaks for. The code of any other
registered function is part of the ids of the cells that use it, be it added or one of these that was edited. After an
edit that cannot move a number record the new digest here; after one that can, raise the version too."""


@cache
def source_digest(function: Callable[..., Any]) -> str:
    """Hash the code of a function, so that a result can be told from one of the same name and other code.

    The function counts with the functions of its own module that it uses, and with the values of the constants it uses.
    Comments, docstrings, decorators and blank lines do not count. Code of other modules does not either.

    Returns:
        12 hex digits.
    """
    digest = hashlib.sha256()
    for text in sorted(_parts(function, set())):
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()[:12]


def _parts(function: Callable[..., Any], seen: set[Callable[..., Any]]) -> Iterator[str]:
    seen.add(function)
    yield _code(function)
    used = inspect.getclosurevars(function)
    for name, value in {**used.nonlocals, **used.globals}.items():
        if inspect.isfunction(value) and value.__module__ == function.__module__:
            if value not in seen:
                yield from _parts(value, seen)
        elif isinstance(value, (bool, int, float, str, tuple)):
            yield f"{name} = {value!r}"


def _code(function: Callable[..., Any]) -> str:
    """The source that computes something; the bytecode where there is no source to be read."""
    try:
        source = textwrap.dedent(inspect.getsource(function))
        definition = ast.parse(source).body[0]
    except (OSError, TypeError, SyntaxError):  # typed into an interpreter, or a lambda within an expression
        code = function.__code__
        return repr((code.co_code, code.co_consts, code.co_names))
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(definition):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            for row in range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1):
                lines[row - 1] = ""
    return "\n".join(line.rstrip() for line in lines[definition.lineno - 1 :] if line.strip())
