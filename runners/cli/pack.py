"""`goal-sweep data pack`: decode and resize a sweep's images once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import Progress

from goal_core.basics.errors import ConfigError
from runners.cli.options import Set, StoreDir, Sweep, SweepArguments, console, notes

if TYPE_CHECKING:
    from goal_core.data import Dataset
    from goal_core.data.packs import PackPlan
    from goal_core.data.packs.writing import Progress as Counter

_BROKEN = 2


def pack(
    sweep: Sweep,
    set_: Set = None,
    store: StoreDir = None,
    workers: Annotated[int, typer.Option(help="Threads that decode; 0: one on each core.", min=0)] = 0,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Also compare all that is packed with its checksums, and mend it."),
    ] = False,
) -> None:
    """Decode and resize a sweep's images once, into files that all trainings of these data read instead.

    Trainings find the pack by themselves, and their logs say so. It lies in the folder `packs` of the store, or in
    GOAL_SWEEP_PACKS. No number and no id depends on it: it holds evaluation's squares of pixels, and images that are
    cropped at random whole. For a smaller pack set data.image.shrink or data.image.jpeg, which are part of every id.

    Called again, it continues where it was interrupted. Exit status: 2 if an image cannot be read.

    Example: goal-sweep data pack coco_vsepp.yaml --set data.image.shrink=256
    """
    from goal_core.data import open_dataset
    from goal_core.data.packs import BrokenImagesError, estimate_bytes, plan_pack, verify_pack, write_pack
    from runners.store import Store
    from sweeps import load_sweep

    config = load_sweep(sweep, SweepArguments(sweep, set_, store).overrides)
    if config.data.image is None:
        raise ConfigError(f"{config.name} trains on features (data.format: {config.data.format}); there is no image")
    dataset = open_dataset(config.data)
    plan = plan_pack(dataset, config.data.image, Store(config.store).packs)
    if verify:
        with _bar("verifying") as count:
            problems = verify_pack(plan, count)
        for problem in problems:
            _say(problem)
        _say(f"{plan.folder}: {len(problems) or 'no'} damaged {'file' if len(problems) < 2 else 'files'}")
    _say(_announcement(dataset, plan, estimate_bytes(dataset, plan)))
    try:
        with _bar("packing") as count:
            size = write_pack(dataset, plan, workers=workers, progress=count)
    except BrokenImagesError as error:
        for problem in error.problems:
            _say(problem)
        what = "1 image" if len(error.problems) == 1 else f"{len(error.problems)} images"
        _say(f"{plan.folder}: not complete, because {what} cannot be read")
        _say("Mended, these data get a pack of another name; then remove this folder.")
        raise typer.Exit(_BROKEN) from None
    images = sum(split.num_images for split in dataset.splits.values())
    _say(f"{plan.folder}: {images:,} images, {size / 1e9:.2f} GB; trainings of these data use it from now on")


def _announcement(dataset: Dataset, plan: PackPlan, sizes: dict[str, int]) -> str:
    parts = [f"{name} {split.num_images:,} {plan.form(name)}" for name, split in dataset.splits.items()]
    return f"{', '.join(parts)}: about {sum(sizes.values()) / 1e9:.2f} GB in all"


def _say(line: str) -> None:
    console.print(line, soft_wrap=True, markup=False)


@contextmanager
def _bar(doing: str) -> Iterator[Counter]:
    """A progress bar, with a line for each split."""
    # Where the output is no terminal, a bar that ends leaves an empty line.
    with Progress(console=notes, transient=True, disable=not notes.is_interactive) as bar:
        tasks: dict[str, Any] = {}

        def count(split: str, done: int, total: int) -> None:
            if split not in tasks:
                tasks[split] = bar.add_task(f"{doing} {split}", total=total)
            bar.update(tasks[split], completed=done)

        yield count
