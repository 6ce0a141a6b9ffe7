"""Time of an objective's forward and backward, as a multiple of the one product X Yᵀ on the same machine.

    python -m benchmarks.objectives --batch 1024 4096 --threads 2

Every round times the product, each objective and, for comparison, losses differentiated by autograd, one after the
other, so that a slow moment of the machine slows them alike. Printed are the best and the median time in milliseconds,
and both as multiples of the product's. On a machine with nothing else to do the two ratios agree; where they do not,
others were running, and the best times are the program's own. pytorch-metric-learning's losses are added when it is
installed.

Then all objectives, each on embeddings of its own as in a sweep, with their statistics: one after the other, and
stacked. On a CPU in the program's own seconds, and with one thread, so that other work counts little.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from benchmarks.machine import print_machine, wait_for
from goal_core.objectives import VARIANTS, GradientObjective, StackedObjectives, pair_weights, triplet_weights

LARGEST_STACKED = 1024
"""Batch above which a CPU does not run the stacked objectives, which are then computed one by one anyway."""
Step = Callable[[Tensor, Tensor], object]


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, measure, print one table per batch size."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batch", type=int, nargs="+", default=[128, 1024, 4096], help="pairs in the batch")
    parser.add_argument("--dim", type=int, default=1024, help="embedding dimensions")
    parser.add_argument("--rounds", type=int, default=9, help="times each step is measured")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    parser.add_argument("--device", default="cpu", help="torch device")
    parser.add_argument("--variant", choices=tuple(VARIANTS), default="paper")
    parser.add_argument("--objectives", nargs="+", metavar="PAIR/TRIPLET", help="default: all of them")
    parser.add_argument("--no-peers", action="store_true", help="leave out the losses differentiated by autograd")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    print_machine(options.device)
    names = options.objectives or [f"{pair}/{triplet}" for pair in pair_weights for triplet in triplet_weights]
    steps: dict[str, Step] = {name: objective_step(name, options.variant) for name in names}
    if not options.no_peers:
        steps |= autograd_losses() | metric_learning_losses()
    for batch in options.batch:
        print(f"\nB {batch}, D {options.dim}, {options.device}, {options.threads} threads")
        print_table(measure(steps, *embeddings(batch, options.dim, options.device), rounds=options.rounds))
        if options.device != "cpu" or batch <= LARGEST_STACKED:
            print_stacked(names, options, batch)


def embeddings(batch: int, dim: int, device: str) -> tuple[Tensor, Tensor]:
    """Unit vectors of loosely matching pairs, shape (B, D) each, as in the middle of a training."""
    generator = torch.Generator().manual_seed(0)
    images, noise = torch.randn(2, batch, dim, generator=generator)
    images, texts = normalize(images), normalize(images + 1.5 * noise)
    return images.to(device).requires_grad_(), texts.to(device).requires_grad_()


def objective_step(name: str, variant: str) -> Step:
    """Forward and backward of one of the objectives."""
    pair, triplet = name.split("/")
    objective = GradientObjective(pair=pair, triplet=triplet, variant=variant)
    return lambda images, texts: torch.autograd.backward(objective(images, texts))


def print_stacked(names: Sequence[str], options: argparse.Namespace, batch: int) -> None:
    """Measure all objectives one after the other and stacked, and print one line."""
    threads, on_cpu = torch.get_num_threads(), options.device == "cpu"
    torch.set_num_threads(1)
    pairs = [name.split("/") for name in names]
    objectives = [
        GradientObjective(pair=pair, triplet=triplet, variant=options.variant, check_finite=False)
        for pair, triplet in pairs
    ]
    together = StackedObjectives(objectives)
    images, texts = (
        torch.stack([own.detach()] * len(names)).requires_grad_()
        for own in embeddings(batch, options.dim, options.device)
    )
    own = [[emb.detach().clone().requires_grad_() for emb in both] for both in zip(images, texts, strict=True)]

    def separate() -> None:
        for objective, (image_emb, text_emb) in zip(objectives, own, strict=True):
            image_emb.grad = text_emb.grad = None
            scalar, stats = objective.forward_with_stats(image_emb, text_emb)
            torch.autograd.backward(scalar)
            stats.as_dict()

    def stacked() -> None:
        images.grad = texts.grad = None
        scalars, stats = together.forward_with_stats(images, texts)
        torch.autograd.backward(scalars.sum())
        stats.as_dicts()

    clock = time.process_time if on_cpu else time.perf_counter
    times: dict[str, list[float]] = {"separate": [], "stacked": []}
    for number in range(options.rounds + 1):
        for name, step in (("separate", separate), ("stacked", stacked)):
            wait_for(images.device)
            began = clock()
            step()
            wait_for(images.device)
            if number:
                times[name].append(1e3 * (clock() - began))
    torch.set_num_threads(threads)
    best, median = ({name: reduce(values) for name, values in times.items()} for reduce in (min, statistics.median))
    print(
        f"{len(names)} objectives with statistics, B {batch}, one thread: "
        f"one by one {best['separate']:.1f} ms, stacked {best['stacked']:.1f} ms, ratio "
        f"{best['stacked'] / best['separate']:.2f} (best), {median['stacked'] / median['separate']:.2f} (median)"
    )


def autograd_losses() -> dict[str, Step]:
    """The two usual losses, written as usual."""

    def hinge(images: Tensor, texts: Tensor) -> None:
        scores = images @ texts.t()
        costs = [(0.2 + scores - scores.diagonal().unsqueeze(dim)).clamp(min=0) for dim in (1, 0)]
        own = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
        loss = sum(cost.masked_fill(own, 0).max(dim).values.sum() for dim, cost in zip((1, 0), costs, strict=True))
        torch.autograd.backward(torch.as_tensor(loss))

    def info_nce(images: Tensor, texts: Tensor) -> None:
        logits = images @ texts.t() / 0.07
        target = torch.arange(len(logits), device=logits.device)
        torch.autograd.backward((cross_entropy(logits, target) + cross_entropy(logits.t(), target)) / 2)

    return {"autograd: max-violation hinge": hinge, "autograd: InfoNCE": info_nce}


def metric_learning_losses() -> dict[str, Step]:
    """Circle and multi-similarity of pytorch-metric-learning, both directions; empty when it is not installed."""
    if importlib.util.find_spec("pytorch_metric_learning") is None:
        print("pytorch-metric-learning is not installed; its losses are left out")
        return {}
    from pytorch_metric_learning.losses import CircleLoss, MultiSimilarityLoss  # type: ignore[import-not-found]  # optional

    def both_ways(loss: Callable[..., Tensor]) -> Step:
        def step(images: Tensor, texts: Tensor) -> None:
            labels = torch.arange(len(images), device=images.device)
            there = loss(images, labels, ref_emb=texts, ref_labels=labels)
            torch.autograd.backward(there + loss(texts, labels, ref_emb=images, ref_labels=labels))

        return step

    return {
        "pytorch-metric-learning: Circle": both_ways(CircleLoss()),
        "pytorch-metric-learning: MultiSimilarity": both_ways(MultiSimilarityLoss()),
    }


def measure(steps: dict[str, Step], images: Tensor, texts: Tensor, *, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each round, by name; the product comes first."""

    def product(images: Tensor, texts: Tensor) -> Tensor:
        return images.detach() @ texts.detach().t()

    times: dict[str, list[float]] = {"X Y^T": [], **{name: [] for name in steps}}
    for number in range(rounds + 1):
        for name, step in [("X Y^T", product), *steps.items()]:
            images.grad = texts.grad = None
            try:
                elapsed = seconds(step, images, texts)
            except torch.OutOfMemoryError:
                elapsed = math.nan
            if number:  # the first round warms up
                times[name].append(1e3 * elapsed)
    return times


def seconds(step: Step, images: Tensor, texts: Tensor) -> float:
    """Wall time of one step, with the device's queue empty before and after."""
    wait_for(images.device)
    start = time.perf_counter()
    step(images, texts)
    wait_for(images.device)
    return time.perf_counter() - start


def print_table(times: dict[str, list[float]]) -> None:
    """One line a step."""
    width = max(map(len, times))
    best_product, median_product = (reduce(times["X Y^T"]) for reduce in (min, statistics.median))
    print(f"{'':{width}}  {'best ms':>9}  {'ratio':>6}  {'median ms':>9}  {'ratio':>6}")
    for name, values in times.items():
        best, median = min(values), statistics.median(values)
        print(f"{name:{width}}  {best:9.2f}  {best / best_product:6.2f}  {median:9.2f}  {median / median_product:6.2f}")


if __name__ == "__main__":
    main()
