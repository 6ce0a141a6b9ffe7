"""A small sweep opened without its data."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from runners.launch.opened_sweep import OpenedSweep
from runners.store.store import Store
from sweeps import expand, load_sweep

SETTINGS = ["seeds=[1]", "objectives={only: [con/con, sig/cir]}"]


def study_in(folder: Path) -> OpenedSweep:
    config = load_sweep("quickstart", [*SETTINGS, f"store={folder}"])
    cells = expand(config, "print", {"test_byobnet": "random"})
    store = Store(folder)
    store.prepare()
    dataset: Any = SimpleNamespace(fingerprint="print", name="scenes")
    return OpenedSweep(config=config, dataset=dataset, weights={"test_byobnet": "random"}, cells=cells, store=store)
