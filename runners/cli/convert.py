"""`goal-sweep convert`: a published checkpoint into one that `evaluate` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from runners.cli.options import Set

_SHOWN = 5


def convert(
    checkpoint: Annotated[
        Path, typer.Argument(help="The published file: VSE++'s .pth.tar, VSE-infinity's .pth, X-VLM's .th.")
    ],
    out: Annotated[Path, typer.Option(help="The .safetensors file to write.")],
    vocabulary: Annotated[
        Path,
        typer.Option(help="The vocabulary it was trained with: VSE++'s coco_vocab.pkl or .json; BERT's vocab.txt."),
    ],
    sweep: Annotated[str, typer.Option(help="A sweep of its framework, on whose `data` it is to be evaluated.")],
    set_: Set = None,
) -> None:
    """Convert a public checkpoint of VSE++, VSE-infinity or X-VLM; nothing in its pickle is run.

    Example: goal-sweep convert model_best.pth.tar --vocabulary coco_vocab.pkl --sweep coco_vsepp --out coco.safetensors
    """
    from goal_core.data import open_dataset
    from goal_core.data.text.wordpieces import Wordpieces
    from goal_core.frameworks import framework_of
    from goal_core.official import read_vocabulary, read_vse_infty, read_vsepp, read_xvlm, write_published
    from sweeps import load_sweep

    console = Console(highlight=False)
    config = load_sweep(sweep, set_ or ())
    data, image = config.data, getattr(config.data, "image", None)
    size = {} if image is None else {"image_size": image.size}
    if config.model.framework == "vse_infty":
        official = read_vse_infty(checkpoint, Wordpieces.from_file(vocabulary), **size)
    elif config.model.framework == "xvlm":
        official = read_xvlm(checkpoint, Wordpieces.from_file(vocabulary), **size)
    else:
        official = read_vsepp(checkpoint, read_vocabulary(vocabulary), **size)
    framework_of(official.model).check(official.model, data)
    write_published(official, out, data=data, data_fingerprint=open_dataset(data).fingerprint)
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
