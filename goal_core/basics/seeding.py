"""Random streams that depend on their purpose and never on what ran before."""

from __future__ import annotations

import hashlib


def derive_seed(seed: int, *purpose: object) -> int:
    """A 63-bit seed for one purpose of one cell seed.

    Args:
        purpose: words that name the stream, such as ``"init"`` or ``"train", "frozen"``.

    Returns:
        An integer in [0, 2^63); equal arguments give equal values on every platform.
    """
    digest = hashlib.sha256("/".join(map(str, (seed, *purpose))).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
