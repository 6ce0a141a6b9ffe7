"""The commands on checkpoints: `evaluate` trained cells, `convert` published checkpoints."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from goal_core.basics.errors import GoalError
from runners.cli.options import AsJson, Device, Set, console, local_path

checkpoints = typer.Typer()
_SHOWN = 5
_RECALLS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10", "rsum")


@checkpoints.command()
def evaluate(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="CHECKPOINT...", help="A best-*.safetensors or its folder; several are evaluated as an ensemble."
        ),
    ],
    split: Annotated[Literal["train", "val", "test"], typer.Option(help="The split to evaluate.")] = "test",
    root: Annotated[str | None, typer.Option(help="Folder of the data, if it has moved.")] = None,
    weights: Annotated[str | None, typer.Option(help="File of the backbone's weights, if it has moved.")] = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Compute the recall of one trained cell, or of several with averaged similarities.

    A split of several thousand images is evaluated as a whole and as the mean of folds of 1,000 (COCO's 5K and 1K).

    Example: goal-sweep evaluate goal-sweep-store/cells/CELL/frozen-KEY

    Example: goal-sweep evaluate STORE/cells/A/frozen-KEY STORE/cells/B/frozen-KEY
    """
    from goal_core.evaluation import evaluate_checkpoint, evaluate_ensemble

    _check_stores(files)
    if len(files) == 1:
        result = evaluate_checkpoint(files[0], split=split, root=root, weights=weights, device=device)
    elif weights is not None:
        raise GoalError(
            f"--weights needs a single checkpoint, got {len(files)}; evaluate them one by one or without it"
        )
    else:
        result = evaluate_ensemble(files, split=split, root=root, device=device)
    if as_json:
        print(json.dumps(result, indent=2))
        return
    console.print(f"{split}: {result['images']} images, {result['captions']} captions", soft_wrap=True)
    for line in _lines(result, split):
        console.print(line, soft_wrap=True)


def _check_stores(files: Sequence[Path]) -> None:
    """Check that the stores in which checkpoints lie are of this version: another's files would look damaged.

    Raises:
        StorageError: another version wrote one of them.
    """
    from runners.store import Store

    parents = (next((one for one in file.absolute().parents if (one / "store.json").is_file()), None) for file in files)
    for store in {parent for parent in parents if parent is not None}:
        Store(store)


def _lines(result: Mapping[str, Any], split: str) -> Iterator[str]:
    """Write two or three lines for each model, the ensemble last, within 80 columns."""
    yield " " * 17 + "".join(f"{name:>9s}" for name in ("i2t R@1", "R@5", "R@10", "t2i R@1", "R@5", "R@10", "rsum"))
    members = result.get("members", [result])
    models = [(f"{one['objective']} seed {one['seed']} {one['stage']}, epoch {one['epoch']}", one) for one in members]
    models += [(f"ensemble of {len(members)}", result)] if len(members) > 1 else []
    for label, one in models:
        yield label
        folds = f"1K, {one['images'] // 1000} folds"
        for prefix, protocol in ((split, "all"), (f"{split}_1k", folds), (f"{split}_embed", "not re-ranked")):
            values = [one["metrics"].get(f"{prefix}/{name}") for name in _RECALLS]
            if values[0] is not None:
                yield f"  {protocol:15s}" + "".join(f"{value:9.2f}" for value in values)


@checkpoints.command()
def convert(
    checkpoint: Annotated[
        Path, typer.Argument(help="The published checkpoint: VSE++'s .pth.tar, VSE-infinity's .pth or X-VLM's .th.")
    ],
    out: Annotated[Path, typer.Option(parser=local_path, help="The .safetensors file to write.")],
    vocabulary: Annotated[
        Path,
        typer.Option(help="The vocabulary of its training: VSE++'s coco_vocab.pkl or .json, or BERT's vocab.txt."),
    ],
    sweep: Annotated[str, typer.Option(help="A sweep of the same framework, whose `data` it will be evaluated on.")],
    set_: Set = None,
) -> None:
    """Convert a published checkpoint of VSE++, VSE-infinity or X-VLM, without running code from its pickle.

    Example: goal-sweep convert model_best.pth.tar --vocabulary coco_vocab.pkl --sweep coco_vsepp --out coco.safetensors
    """
    from goal_core.data import open_dataset, own_indexes
    from goal_core.models.frameworks import framework_of
    from goal_core.official import read_published, write_published
    from sweeps import load_sweep

    config = load_sweep(sweep, set_ or ())
    data = config.data
    size = None if data.image is None else data.image.size
    official = read_published(config.model.framework, checkpoint, vocabulary, image_size=size)
    framework_of(official.model).check(official.model, data)
    write_published(official, out, data=data, data_fingerprint=open_dataset(data, own_indexes()).fingerprint)
    model = official.model
    console.print(
        f"{out}: {model.framework} {model.backbone.name}, {len(official.tensors)} tensors, all used; "
        f"{len(official.vocabulary)} words, epoch {official.epoch}",
        soft_wrap=True,
    )
    if not official.leftovers:
        console.print("nothing left over")
    for reason, names in official.leftovers.items():
        shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
        console.print(f"left over, {reason}: {len(names)} ({shown})", soft_wrap=True)
