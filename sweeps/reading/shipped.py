"""Finding a sweep: a file, or the name of one that ships with the project."""

from __future__ import annotations

from pathlib import Path

from goal_core.errors import GoalError, nearest

_FOLDER = Path(__file__).parent.parent


class SweepNotFoundError(GoalError):
    """Neither a file nor a shipped sweep has this name."""


def list_shipped() -> list[str]:
    """Names of the sweeps that ship with the project, in alphabetical order, without `.yaml`."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def find_sweep(sweep: str | Path, folder: Path | None = None) -> Path:
    """The file that a SWEEP argument, or an `extends`, means.

    Args:
        sweep: a path, or the name of a shipped sweep with or without `.yaml`. An existing file wins.
        folder: relative paths start here; the current directory when not given.

    Raises:
        SweepNotFoundError: there is no such file and no such shipped sweep.
    """
    path = (folder or Path()) / Path(sweep).expanduser()
    if path.is_file():
        return path
    name = str(sweep).removesuffix(".yaml").removesuffix(".yml")
    names = list_shipped()
    if name in names:
        return _FOLDER / f"{name}.yaml"
    kind = "is a folder" if path.is_dir() else "is neither a file nor the name of a shipped sweep"
    hint = nearest(Path(name).name, names)
    raise SweepNotFoundError(f"sweep {str(sweep)!r} {kind}{hint}; shipped sweeps: {', '.join(names)}")
