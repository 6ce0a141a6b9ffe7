"""Random streams that depend on their purpose and never on what ran before."""

from __future__ import annotations

import hashlib


def derive_seed(seed: int, *purpose: object) -> int:
    """A seed in [0, 2^63) for one purpose of a cell's seed, such as ``"train", "frozen"``; the same everywhere."""
    digest = hashlib.sha256("/".join(map(str, (seed, *purpose))).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
