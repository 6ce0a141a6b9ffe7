"""Prove a GPU in one run: its tests, the flagship's speed, planning's prices, ratios, packs, and a profile.

    python -m benchmarks.gpu --out DIR [--device cuda|cpu] [--quick] [--only STEP ...] [--deadline SECONDS]

Needs goal_core's dependencies alone, and pytest for the tests. Each step is a process with a time limit of its own. One
that fails or is late hides no other, and leaves the rows that it has. The deadline shortens the last steps, or leaves
them out. After every step DIR/gpu.json (everything) and DIR/gpu.md (a page for benchmarks/RESULTS.md) are written anew;
the JSON's block `prices` is a card of `goal-sweep plan`. `--quick` only shows that everything runs.
"""

from __future__ import annotations

import sys

from benchmarks.__main__ import RESNET152, TINY, Step, main

SHARED = "--data {data}"
"""A folder of photographs that several steps read."""
LARGE, SMALL = f"{SHARED} --images 2000 {RESNET152}", f"{SHARED} {TINY}"
STEPS = (
    Step("tests", "every GPU test of goal_core", "gpu_tests", limit=150),
    Step("flagship", "ResNet-152 on photographs: cells alone, sharing and stacked, and fine-tuning", "steps",
         f"{SMALL} --rows one heads trunk finetune --sources files pack --cells 3",
         f"{LARGE} --rows one heads trunk finetune --precisions fp32 bf16 --sources files pack", limit=260),
    Step("prices", "what planning needs of the card", "prices",
         f"{SMALL} --backbones test_resnet --forward-size 32 --forward-batch 2 --rounds 1",
         f"{SHARED} --images 2000 --threads 8 --workers 8 --warm 5 --steps 20", limit=90),
    Step("ratios", "objectives and recall against one product", "ratios", "--batch 16 --dim 8 --images 50 --rounds 1",
         "--batch 1024 4096", limit=60),
    Step("packs", "JPEG files and packs against torchvision", "data_path", TINY,
         "--images 400 --backbone resnet152 --workers 8", limit=75),
    Step("profile", "what ten steps consist of", "steps", f"{SMALL} --rows heads finetune --cells 3 --profiled 2",
         f"{LARGE} --rows heads finetune --profiled 10", limit=75),
)  # fmt: skip
"""The most important first."""


if __name__ == "__main__":
    sys.exit(main(steps=STEPS, doc=__doc__, device="cuda", deadline=570.0))
