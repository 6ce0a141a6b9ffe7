"""`goal-sweep data`: check a sweep's data, pack its images, and compute features of it before training."""

import json
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from goal_sweep.goal_core.basics.errors import ConfigError, WeightsError
from goal_sweep.goal_core.data import Dataset
from goal_sweep.goal_core.data.formats.index import own_indexes
from goal_sweep.goal_core.data.formats.opening import check_data, open_dataset
from goal_sweep.goal_core.data.formats.report import FAULTS
from goal_sweep.goal_core.evaluation.feature_files import check_origin
from goal_sweep.goal_core.models.frameworks import brings_tokenizer
from goal_sweep.runners.cli.options import AsJson, Device, Set, StoreDir, Sweep, SweepArguments
from goal_sweep.runners.cli.output import Output, console, progress_bar
from goal_sweep.runners.store import Store
from goal_sweep.sweeps import load_sweep

data = typer.Typer(help="Check a sweep's data, pack its images, or compute features of it.", no_args_is_help=True)
_INCOMPLETE = 2


@data.command()
def check(
    sweep: Sweep,
    set_: Set = None,
    quick: Annotated[bool, typer.Option("--quick", help="Check presence and size only; do not read images.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check which of a sweep's data are present, missing or wrong. Downloads nothing.

    Exit status: 0 if the data are complete, else 2.

    Example: goal-sweep data check emoji_vsepp.yaml --set data.root=/data/emoji
    """
    config = load_sweep(sweep, set_ or [])

    def captions(dataset: Dataset) -> None:
        from goal_sweep.goal_core.checkpoints.initial_model import InitialModel, check_captions  # with torch

        with suppress(WeightsError):  # of the text encoder, which `validate` tells
            check_captions(InitialModel(config.model.models[0], config.data, dataset), dataset)

    with progress_bar("reading") as count:
        words, read = not brings_tokenizer(config.model.models[0]), partial(count, "images")
        report = check_data(config.data, quick=quick, progress=read, captions=captions, words=words)
    names = [backbone.name for backbone in config.model.backbones]
    if report.complete:
        report.attempt("features.json", lambda: check_origin(config.data, names))
    if as_json:
        content = {"name": report.name, "complete": report.complete}
        print(json.dumps(content | {"findings": [asdict(finding) for finding in report.findings]}, indent=2))
        raise typer.Exit(0 if report.complete else _INCOMPLETE)
    width = max((len(finding.item) for finding in report.findings), default=0)
    for one in report.findings:
        published = f"  [published: {one.published}]" if one.published else ""
        found = SweepArguments(sweep, set_).place(one.key, one.found) if one.key else one.found
        console.print(f"{one.state:8s} {one.item:{width}s}  {found}{published}")
    bad = sum(one.state in FAULTS for one in report.findings)
    console.print(f"{report.name}: {f'{bad} missing or wrong' if bad else 'complete'}")
    if bad and report.name in ("coco", "f30k"):
        console.print("docs/data.md says where the published data come from")
    raise typer.Exit(0 if report.complete else _INCOMPLETE)


@data.command()
def pack(
    sweep: Sweep,
    set_: Set = None,
    store: StoreDir = None,
    workers: Annotated[int, typer.Option(help="Threads that decode; 0: one on each core.", min=0)] = 0,
) -> None:
    """Decode and resize a sweep's images once, into files that all trainings of these data read instead.

    Trainings find the pack by themselves, and their logs say so. It lies in the folder `packs` of the store, or in
    GOAL_SWEEP_PACKS. No number and no id depends on it: it holds evaluation's squares of pixels, and images that are
    cropped at random whole. For a smaller pack set data.image.shrink, which is part of every id.

    Called again, it continues where it was interrupted. A damaged file of it is removed when it is read, and the images
    are decoded instead. The command ends at an image that cannot be read; `data check` names all of them.

    Example: goal-sweep data pack coco_vsepp.yaml --set data.image.shrink=256
    """
    from goal_sweep.goal_core.data.packs import estimate_bytes, plan_pack, write_pack

    arguments = SweepArguments(sweep, set_, store)
    config = load_sweep(sweep, arguments.overrides)
    if config.data.image is None:
        raise ConfigError(f"{config.name} trains on features (data.format: {config.data.format}); there is no image")
    results = Store(config.store)
    with progress_bar("reading") as count, arguments.placed():
        dataset = open_dataset(config.data, results.indexes, progress=partial(count, "images"))
    plan = plan_pack(dataset, config.data.image, results.packs)
    sizes = estimate_bytes(dataset, plan)
    parts = [f"{name} {split.num_images:,} {plan.form(name)}" for name, split in dataset.splits.items()]
    console.print(f"{', '.join(parts)}: about {sum(sizes.values()) / 1e9:.2f} GB in all")
    with progress_bar("packing") as count:
        size = write_pack(dataset, plan, workers=workers, progress=count)
    images = sum(split.num_images for split in dataset.splits.values())
    console.print(f"{plan.folder}: {images:,} images, {size / 1e9:.2f} GB; trainings of these data use it from now on")


@data.command()
def features(
    sweep: Sweep,
    out: Annotated[Path, Output(help="Folder to write; an interrupted call is continued.")],
    set_: Set = None,
    kind: Annotated[
        Literal["grid", "vectors"],
        typer.Option(help="grid: cells of the last feature map; vectors: the whole image, pooled."),
    ] = "grid",
    backbone: Annotated[str | None, typer.Option(help="One of the sweep's backbones, if it has several.")] = None,
    device: Device = "cpu",
    workers: Annotated[int, typer.Option(help="Decoding processes.")] = 0,
) -> None:
    """Compute a backbone's features of a sweep's images once, to train on them.

    `grid` goes with `data.format: regions` and VSE-infinity, `vectors` with `data.format: precomp` and VSE++.

    Example: goal-sweep data features emoji_vsepp.yaml --out emoji-grid
    """
    from goal_sweep.goal_core.evaluation.extract import extract_features

    config = load_sweep(sweep, set_ or [])
    if config.data.image is None:
        raise ConfigError(f"{config.name} trains on features already ({config.data.format}); give a sweep with images")
    if config.model.framework == "dual":
        raise ConfigError(f"{config.name} computes its features once by itself (framework dual); launch it as it is")
    chosen = [one for one in config.model.backbones if backbone in (None, one.name)]
    if len(chosen) != 1:
        names = ", ".join(one.name for one in config.model.backbones)
        raise ConfigError(f"--backbone must be one of the sweep's backbones, {names}; got {backbone!r}")
    with progress_bar("computing") as progress, SweepArguments(sweep, set_).placed():
        dataset = open_dataset(config.data, own_indexes())
        images, regions, width = extract_features(
            dataset, config.data.image, chosen[0], out, kind=kind, seed=config.seeds[0], device=device, workers=workers,
            progress=progress,
        )  # fmt: skip
    each = f"a vector of {width} numbers each" if kind == "vectors" else f"{regions} regions of {width} numbers each"
    console.print(f"{out}: {images} images, {each}")
    layout = f"data: {{format: {'precomp' if kind == 'vectors' else 'regions'}, name: ..., root: {out}}}"
    console.print(f"train on them with: {layout}, and backbone weights precomputed")
