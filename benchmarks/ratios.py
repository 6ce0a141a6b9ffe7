"""What costs about one matrix product: objectives and recall, as multiples of that product's time.

    python -m benchmarks.ratios --batch 128 1024 4096 --threads 2

Every round times the product X Yᵀ, and forward and backward of each objective, one after the other, so that a slow
moment of the machine slows all alike. Of the objectives with one pair weight the
slowest is shown. Recall, over all and over five folds, is compared with the product of all embeddings.
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from itertools import product
from statistics import median

import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.program import MIB, Report, Row, peak_memory, run, seconds
from goal_sweep.goal_core.evaluation.retrieval import retrieval_metrics
from goal_sweep.goal_core.objectives import pair_weights, triplet_weights
from goal_sweep.goal_core.objectives.gradient_objective import GradientObjective

OPTIONS = {"batch": (128, 1024, 4096), "dim": 1024, "images": 5000, "rounds": 9, "threads": 2}


def measure(given: argparse.Namespace, report: Report) -> None:
    """Measure recall, whose memory must be the first that is taken, and the objectives at each batch size."""
    torch.set_num_threads(given.threads)
    table = f"recall of {given.images:,} images and {5 * given.images:,} captions, D {given.dim}, fp32"
    report.row(table, "all and five folds", partial(_recall, given))
    for batch in given.batch:
        _objectives(given, report, batch)


def _pairs(given: argparse.Namespace, count: int) -> tuple[Tensor, Tensor]:
    """Unit vectors of loosely matching pairs, (count, D) each, as in the middle of a training."""
    images, noise = torch.randn(2, count, given.dim, generator=torch.Generator().manual_seed(0))
    images, texts = normalize(images, dim=-1), normalize(images + 1.5 * noise, dim=-1)
    return images.to(given.device).requires_grad_(), texts.to(given.device).requires_grad_()


def _objectives(given: argparse.Namespace, report: Report, batch: int) -> None:
    (images, texts), own = _pairs(given, batch), "X Yᵀ"
    steps: dict[tuple[str, str], Callable[[], object]] = {(own, ""): lambda: images.detach() @ texts.detach().t()}
    for pair, triplet in product(pair_weights, triplet_weights):
        objective = GradientObjective(pair=pair, triplet=triplet)
        both_passes = partial(lambda objective: torch.autograd.backward(objective(images, texts)), objective)
        steps[f"{pair}, slowest of 3", triplet] = both_passes
    times: dict[tuple[str, str], list[float]] = {key: [] for key in steps}
    for _ in range(given.rounds + 1):
        for key, step in steps.items():
            images.grad = texts.grad = None
            times[key].append(1000 * seconds(step, given.device, given.threads))
    base = times[own, ""][1:]
    for name in dict.fromkeys(name for name, _ in steps):
        best, middle = (max(of(taken[1:]) for key, taken in times.items() if key[0] == name) for of in (min, median))
        row = {"best ms": best, f"/ {own}": best / min(base), "median": middle / median(base)}
        report.row(f"forward and backward, batch {batch}, D {given.dim}", name, partial(dict, row))


def _recall(given: argparse.Namespace) -> Row:
    owners = torch.arange(given.images).repeat_interleave(5).to(given.device)
    images, texts = (rows.detach() for rows in _pairs(given, 5 * given.images))
    images = images[::5].clone()

    def both() -> None:
        retrieval_metrics(images, texts, owners)
        retrieval_metrics(images, texts, owners, folds=5)

    def taken(call: Callable[[], object]) -> float:
        return median([seconds(call, given.device, given.threads) for _ in range(4)][1:])

    # Recall runs before the product, whose result alone is 0.5 GB: the peak is then that of recall.
    before = peak_memory(given.device, anew=True)
    recall = taken(both)
    extra, out = peak_memory(given.device) - before, torch.empty(len(images), len(texts), device=given.device)
    once = taken(lambda: torch.mm(images, texts.T, out=out))
    return {"product, s": once, "recall, s": recall, "recall / product": recall / once, "MiB more": extra / MIB}


if __name__ == "__main__":
    sys.exit(run(__doc__, OPTIONS, measure))
