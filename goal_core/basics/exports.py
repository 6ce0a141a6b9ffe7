"""Exports of a package that are imported when they are first used.

Half of goal_core needs torch, which takes two seconds to load, and commands such as `status` need none of that half. So
the `__init__` of a room names its exports for readers and type checkers, and imports none of them by itself:

    if TYPE_CHECKING:
        from goal_sweep.goal_core.models.heads import Heads
    else:
        __getattr__ = on_first_use(__name__, __file__)
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any


def exports(package: str, file: str) -> dict[str, str]:
    """What a package exports, by name, each with the module that defines it.

    Args:
        package: the package's full name.
        file: its `__init__.py`, whose ``from package.module import name`` lines say it.
    """
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: str(node.module) for node in imports for alias in node.names}
    return {name: home for name, home in homes.items() if home.startswith(f"{package}.")}


def on_first_use(package: str, file: str) -> Callable[[str], Any]:
    """Make a package's `__getattr__`, which imports an exported name from the module that defines it.

    Args:
        package: the package's full name. No export may have the name of one of its modules.
        file: its `__init__.py`; see :func:`exports`.
    """
    homes = cache(lambda: exports(package, file))

    def load(name: str) -> Any:
        if name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(homes()[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load
