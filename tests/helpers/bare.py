"""Python as it is where only goal_core's dependencies are installed, as on a borrowed GPU machine."""

import os
from pathlib import Path

MISSING = (
    *("ray", "mlflow", "pydantic", "pydantic_core", "ruamel", "typer", "rich", "psutil", "optuna"),
    *("matplotlib", "jinja2", "scipy", "sklearn", "accelerate"),
)
"""What is not there."""
_HIDING = """
from importlib.machinery import PathFinder

missing, find = {missing!r}, PathFinder.find_spec
PathFinder.find_spec = classmethod(
    lambda cls, name, *rest, **named: None if name.partition(".")[0] in missing else find(name, *rest, **named)
)
"""


def bare_environ(folder: Path, root: Path, *missing: str) -> dict[str, str]:
    """The environment of a Python of a checkout, and its children, that cannot find `MISSING` and ``missing``."""
    (folder / "sitecustomize.py").write_text(_HIDING.format(missing={*MISSING, *missing}))
    path = f"{folder}{os.pathsep}{root}"
    return {**os.environ, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "OMP_NUM_THREADS": "1"}
