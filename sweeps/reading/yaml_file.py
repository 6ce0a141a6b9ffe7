"""Read a file that holds one YAML mapping, and report by name what keeps it from being read."""

from __future__ import annotations

from pathlib import Path

from sweeps.reading.yaml_source import MAX_BYTES, TOO_LARGE, Node, Problem, Where, parse_yaml


def read_mapping(path: Path, what: str, problems: list[Problem], sources: list[str]) -> Node | None:
    """Read a file.

    Args:
        path: the file.
        what: what it is, for messages: `a sweep file`.
        problems: receives why it cannot be read.
        sources: receives its name as messages show it.

    Returns:
        The mapping, or None where there is none.
    """
    source = shown(path)
    sources.append(source)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            problems.append(Problem(Where(source), "", TOO_LARGE))
            return None
        text = content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        problems.append(Problem(Where(source), "", f"cannot be read: {reason}"))
        return None
    already = len(problems)
    root = parse_yaml(text, source, problems)
    if root is None:
        if len(problems) == already:
            problems.append(Problem(Where(source), "", "the file is empty"))
        return None
    if not isinstance(root.value, dict):
        problems.append(Problem(root.where, "", f"{what} is a mapping of keys to values"))
        return None
    return root


def shown(path: Path) -> str:
    """The path for messages, relative if it lies below the current directory."""
    absolute = path.absolute()
    return str(absolute.relative_to(Path.cwd())) if absolute.is_relative_to(Path.cwd()) else str(absolute)
