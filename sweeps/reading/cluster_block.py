"""The `cluster` block of a sweep file, and the site file below it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path

from sweeps.clusters import ClusterConfig, KubernetesConfig, RayConfig, SlurmConfig
from sweeps.reading.merging import merge
from sweeps.reading.paths import expand_environment
from sweeps.reading.tree import Node, Problem, Where
from sweeps.reading.validation import validate
from sweeps.reading.yaml_file import read_mapping

BLOCK = "cluster"
_SETTINGS: dict[str, type[SlurmConfig | RayConfig | KubernetesConfig]] = {
    "slurm": SlurmConfig,
    "ray": RayConfig,
    "kubernetes": KubernetesConfig,
}
_NOT_EXPANDED = re.compile(r"slurm\.setup\.\d+")
"""Shell of the node, where `${VAR}` means a variable of the node."""


def split(root: Node) -> tuple[Node, Node | None]:
    """Take the `cluster` block out of a sweep file.

    Returns:
        The rest of the sweep file, and the block; None where there is none.
    """
    assert isinstance(root.value, dict)
    rest = {key: child for key, child in root.value.items() if key != BLOCK}
    return Node(rest, root.where), root.value.get(BLOCK)


def read_cluster(
    block: Node | None, site: Path | None, environ: Mapping[str, str], problems: list[Problem], sources: list[str]
) -> ClusterConfig | None:
    """Check a `cluster` block over a site file.

    Args:
        block: the block; None where the sweep has none.
        site: the site file; None where there is none.
        environ: the environment that `${VAR}` refers to in a site file and in `--set`, in all values but the lines of
            `setup`.
        problems: receives what is wrong. The key path begins with `cluster` in a sweep file, and not in a site file.
        sources: receives the site file's name.

    Returns:
        The settings, or None when anything is wrong.
    """
    before, already = None, len(problems)
    if site is not None:
        before = read_mapping(site, "a site file", problems, sources)
        if before is None:
            return None
    site_source = before.where.source if before is not None else None
    if block is not None:
        problems += _not_for_sweeps(block)
    if block is None:
        node = before or Node({}, Where(sources[0] if sources else ""))
    else:
        node = block if before is None else merge(before, block)
    if not isinstance(node.value, dict):
        problems.append(Problem(node.where, BLOCK, "must be a mapping of slurm, ray and kubernetes"))
        return None
    found: list[Problem] = []
    config = validate(
        expand_environment(node, environ, found, allowed=lambda path: not _NOT_EXPANDED.fullmatch(path), strict=False),
        ClusterConfig,
        found,
    )
    for problem in found:
        inside = problem.where.source != site_source
        path = f"{BLOCK}.{problem.path}".rstrip(".") if inside else problem.path
        problems.append(replace(problem, path=path, message=problem.message.replace("--set ", f"--set {BLOCK}.")))
    return config if len(problems) == already else None


def _not_for_sweeps(block: Node) -> Iterator[Problem]:
    """Settings that a sweep file may not hold, because sweep files are passed on and should be safe to submit.

    What decides which code runs, what is sent, or who receives it stands in the user's own site file or in `--set`.
    """
    instead = "in a sweep file; set it in the site file (~/.config/goal-sweep/site.yaml) or with --set"
    for kind, settings in _items(block):
        for key, node in _items(settings):
            path = f"{BLOCK}.{kind}.{key}"
            if kind not in _SETTINGS or _from_command_line(node):
                continue
            if key in {one.name for one in fields(_SETTINGS[kind])} - _SETTINGS[kind].IN_SWEEP:
                yield Problem(node.where, path, f"decides what runs or what is sent, so it may not stand {instead}")
            elif any("${" in text for text in _texts(node)):
                yield Problem(node.where, path, f"environment variables may not stand in this block {instead}")


def _items(node: Node) -> Iterator[tuple[str, Node]]:
    if isinstance(node.value, dict):
        yield from node.value.items()


def _texts(node: Node) -> Iterator[str]:
    if isinstance(node.value, str):
        yield node.value
    elif isinstance(node.value, dict | list):
        for child in node.value.values() if isinstance(node.value, dict) else node.value:
            yield from _texts(child)


def _from_command_line(node: Node) -> bool:
    return node.where.source.startswith("--set ")
