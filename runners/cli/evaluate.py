"""`goal-sweep evaluate`: recall of one trained cell, or of several together."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer
from rich.console import Console

from goal_core.errors import GoalError

_console = Console(highlight=False)
_RECALLS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10", "rsum")


def evaluate(
    checkpoints: Annotated[
        list[Path], typer.Argument(help="A best.safetensors, or the folder it lies in; of several, an ensemble.")
    ],
    split: Annotated[str, typer.Option(help="train, val or test.")] = "test",
    root: Annotated[str | None, typer.Option(help="The data's folder, if it has moved.")] = None,
    weights: Annotated[str | None, typer.Option(help="The backbone's weights file, if it has moved.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Recall of one trained cell, or of several by the mean of their similarities.

    Splits of several thousand images are ranked whole and as the mean of folds of 1,000 (COCO's 5K and 1K).

    Example: goal-sweep evaluate goal-sweep-store/cells/CELL/frozen-KEY

    Example: goal-sweep evaluate STORE/cells/A/frozen-KEY STORE/cells/B/frozen-KEY
    """
    from goal_core.evaluation import evaluate_checkpoint, evaluate_ensemble

    if split not in ("train", "val", "test"):
        raise GoalError(f"--split must be train, val or test, got {split!r}")
    chosen = cast(Literal["train", "val", "test"], split)
    if len(checkpoints) == 1:
        result = evaluate_checkpoint(checkpoints[0], split=chosen, root=root, weights=weights, device=device)
    elif weights is not None:
        raise GoalError("--weights is of one backbone; evaluate the checkpoints one by one, or where the weights are")
    else:
        result = evaluate_ensemble(checkpoints, split=chosen, root=root, device=device)
    if as_json:
        print(json.dumps(result, indent=2))
        return
    _console.print(f"{split}: {result['images']} images, {result['captions']} captions", soft_wrap=True)
    for line in _lines(result, split):
        _console.print(line, soft_wrap=True)


def _lines(result: Mapping[str, Any], split: str) -> Iterator[str]:
    """Two or three lines for each model, the ensemble last; 80 columns hold them."""
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
