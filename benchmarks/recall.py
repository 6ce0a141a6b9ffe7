"""Time and memory of recall at the size of the COCO test split, beside the one matrix product it contains.

    python -m benchmarks.recall

prints the product of (5,000 x 1,024) and (25,000 x 1,024), then recall over all 5,000 images plus the mean of five 1K
folds, as a ratio of the same run, and the same recall as it is usually written with numpy. The target is at most 2x,
and under 1 GB; on a GPU below half a second.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import normalize

from benchmarks.machine import clock_of, peak_bytes, print_machine, wait_for
from goal_core.evaluation import retrieval_metrics


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=5000, help="number of images, a multiple of 5")
    parser.add_argument("--dims", type=int, default=1024, help="embedding dimensions")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each; the median counts")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    args = parser.parse_args(arguments)
    torch.set_num_threads(args.threads)
    device = torch.device(args.device)
    print_machine(args.device)
    clock = clock_of(args.device, args.threads)
    generator = torch.Generator().manual_seed(0)
    owners = torch.arange(args.images).repeat_interleave(5).to(device)
    images = normalize(torch.randn(args.images, args.dims, generator=generator), dim=1).to(device)
    texts = normalize(torch.randn(5 * args.images, args.dims, generator=generator), dim=1).to(device)
    texts = normalize(images[owners] + 6 * texts, dim=1)

    def both() -> None:
        retrieval_metrics(images, texts, owners)
        retrieval_metrics(images, texts, owners, folds=5)

    # Recall runs before the product, whose result alone is 0.5 GB: the peak is then that of recall.
    before = peak_bytes(args.device, reset=True)
    recall_s = median_seconds(both, args.repeats, device, clock)
    recall_mb = peak_bytes(args.device) / 1e6
    out = torch.empty(args.images, 5 * args.images, device=device)
    product_s = median_seconds(lambda: torch.mm(images, texts.T, out=out), args.repeats, device, clock)
    recall_s = min(recall_s, median_seconds(both, args.repeats, device, clock))
    arrays = images.cpu().numpy(), texts.cpu().numpy()
    peers = {}
    for name, ranks in (("sorted", sorted_ranks), ("counted", counted_ranks)):
        start = clock()
        peers[name] = numpy_recalls(*arrays, ranks), clock() - start
    assert peers["sorted"][0] == peers["counted"][0]
    print(f"{args.images} x {5 * args.images} x {args.dims}, fp32, {device}, {args.threads} CPU threads")
    print(f"one product        {product_s:8.3f} s")
    print(f"5K + 5 x 1K recall {recall_s:8.3f} s   {recall_s / product_s:.2f}x (target <= 2x)")
    for name, (_, took) in peers.items():
        print(
            f"in numpy, {name:8} {took:8.3f} s   {took / product_s:.2f}x, {took / recall_s:.1f} times as long as ours"
        )
    print(f"peak memory        {recall_mb:8.0f} MB  {recall_mb - before / 1e6:+.0f} MB by recall (target < 1000 MB)")


Clock = Callable[[], float]
Ranks = Callable[[NDArray[np.float32], NDArray[np.int64]], NDArray[np.int64]]


def numpy_recalls(images: NDArray[np.float32], texts: NDArray[np.float32], ranks: Ranks) -> list[float]:
    """R@1, R@5, R@10 of both directions over all images, then their means over five folds; five captions each."""
    size = len(images) // 5
    parts = [(images[i * size : (i + 1) * size], texts[5 * i * size : 5 * (i + 1) * size]) for i in range(5)]
    folds = np.mean([_recalls(*part, ranks) for part in parts], axis=0).tolist()
    return [*_recalls(images, texts, ranks), *folds]


def _recalls(images: NDArray[np.float32], texts: NDArray[np.float32], ranks: Ranks) -> list[float]:
    scores = images @ texts.T
    owners = np.arange(len(texts)) // 5
    i2t = ranks(scores, np.arange(len(texts)).reshape(-1, 5))
    t2i = ranks(np.ascontiguousarray(scores.T), owners[:, None])
    return [100 * float(np.mean(found < k)) for found in (i2t, t2i) for k in (1, 5, 10)]


def sorted_ranks(scores: NDArray[np.float32], matches: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rank of each query's best match, as evaluation code of the field finds it: by sorting every row."""
    return np.array(
        [np.isin(np.argsort(-row), own).argmax() for row, own in zip(scores, matches, strict=True)], dtype=np.int64
    )


def counted_ranks(scores: NDArray[np.float32], matches: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same without a sort: how many candidates are nearer than the best match."""
    best = np.take_along_axis(scores, matches, axis=1).max(axis=1, keepdims=True)
    counts: NDArray[np.int64] = (scores > best).sum(axis=1)
    return counts


def median_seconds(call: Callable[[], object], repeats: int, device: torch.device, clock: Clock) -> float:
    """Median seconds of ``call`` after one warm-up."""
    call()
    times = []
    for _ in range(repeats):
        wait_for(device)
        start = clock()
        call()
        wait_for(device)
        times.append(clock() - start)
    return statistics.median(times)


if __name__ == "__main__":
    main()
