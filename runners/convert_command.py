"""`goal-sweep convert`: a published checkpoint into one that `evaluate` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from goal_core.errors import ConfigError

_SHOWN = 5


def convert(
    checkpoint: Annotated[Path, typer.Argument(help="The published file: VSE++'s model_best.pth.tar.")],
    out: Annotated[Path, typer.Option(help="The .safetensors file to write.")],
    vocabulary: Annotated[Path, typer.Option(help="The vocabulary it was trained with: coco_vocab.pkl or .json.")],
    sweep: Annotated[str, typer.Option(help="A sweep whose `data` it is to be evaluated on.")],
) -> None:
    """Convert a public VSE++ checkpoint; nothing in its pickle is run.

    Example: goal-sweep convert model_best.pth.tar --vocabulary coco_vocab.pkl --sweep coco_vsepp --out coco.safetensors
    """
    from goal_core.data import open_dataset
    from goal_core.official import read_vocabulary, read_vsepp, write_official
    from sweeps import load_sweep

    console = Console(highlight=False)
    data = load_sweep(sweep).data
    image = getattr(data, "image", None)
    if image is None:
        raise ConfigError(f"--sweep {sweep}: VSE++ needs images, and this sweep's data hold none")
    official = read_vsepp(checkpoint, read_vocabulary(vocabulary), image_size=image.size)
    write_official(official, out, data=data, data_fingerprint=open_dataset(data).fingerprint)
    model = official.model
    console.print(
        f"{out}: {model.framework} {model.backbone.name}, {len(official.renamed.tensors)} tensors, all used; "
        f"{len(official.vocabulary)} words, epoch {official.epoch}",
        soft_wrap=True,
    )
    if not official.renamed.leftover:
        console.print("nothing left over")
    for part in official.renamed.leftover:
        names = ", ".join(part.names[:_SHOWN]) + (", ..." if len(part.names) > _SHOWN else "")
        console.print(f"left over, {part.reason}: {len(part.names)} ({names})", soft_wrap=True)
