"""Check that no folder is a pile: `python -m tests.rooms`, a part of `make lint`.

A folder may hold at most 14 modules, and the longest chain of imports among what it holds may have at most 6 floors.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import grimp

PACKAGES = ("goal_sweep", "benchmarks")
MOST_MODULES, MOST_FLOORS = 14, 6


def complaints() -> Iterator[str]:
    """One line for every folder that has grown too large."""
    graph = grimp.build_graph(PACKAGES[0], *PACKAGES[1:], exclude_type_checking_imports=False, cache_dir=None)
    for package in sorted(graph.modules):
        children = graph.find_children(package)
        files = [child for child in children if not graph.find_children(child)]
        if len(files) > MOST_MODULES:
            yield f"{package} holds {len(files)} modules; more than {MOST_MODULES} need rooms"
        above = {child: _imported_siblings(graph, child, children) for child in children}
        if (floors := floors_of(above)) > MOST_FLOORS:
            yield f"{package} has {floors} floors of imports; more than {MOST_FLOORS} are hard to follow"


def _imported_siblings(graph: grimp.ImportGraph, child: str, children: set[str]) -> set[str]:
    inside = {child, *graph.find_descendants(child)}
    imported = {target for module in inside for target in graph.find_modules_directly_imported_by(module)}
    prefixes = {other: f"{other}." for other in children - {child}}
    return {other for other, prefix in prefixes.items() if any(f"{target}.".startswith(prefix) for target in imported)}


def floors_of(imports: Mapping[str, set[str]]) -> int:
    """The longest chain of imports; 0 of nothing. The imports have no cycle (import-linter checks that)."""

    @cache
    def floor(name: str) -> int:
        return 1 + max(map(floor, imports[name]), default=0)

    return max(map(floor, imports), default=0)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    sys.exit("\n".join(complaints()) or 0)
