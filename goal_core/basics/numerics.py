"""What decides the numbers: the version of the arithmetic, which code it covers, and random streams."""

import hashlib

NUMERICS_VERSION = 4
"""Part of every cell id. Raise it with a change that moves the numbers a cell ends with although its settings stay the
same (initialisation, sampling order, augmentation, an objective's formula, the optimiser); results trained before are
then no longer taken for the new ones. A change that only moves speed, memory or logging leaves it alone."""

BUILT_IN_CODE = frozenset(
    {
        # Pair weights: con, lin, sig, lin-ms, sig-ms.
        *("05fe3d1ea85f", "24f79fa1d57f", "9597e06a8f9c", "99bc4967c96e", "e1f4936a7639"),
        # Triplet weights: con, nca, cir.
        *("394db423b921", "d22118a56d7f", "c2ea456ccdb7"),
        # Baselines: infonce, sigmoid.
        *("5cc8b6f47b00", "ced96a546979"),
    }
)
"""Hashes of the source of the registered functions that `NUMERICS_VERSION` speaks for. Of any other, be it added or one
of these that was edited, the file that defines it is part of the ids of the cells that use it. After an edit that
cannot move a number record the new hash here; after one that can, raise the version too."""


def derive_seed(seed: int, *purpose: object) -> int:
    """A seed in [0, 2^63) for one purpose of a cell's seed, such as ``"train", "frozen"``; the same everywhere."""
    digest = hashlib.sha256("/".join(map(str, (seed, *purpose))).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
