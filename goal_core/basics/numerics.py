"""The part of the code that enters a cell's id: the version of the arithmetic, and which weights it covers."""

from __future__ import annotations

NUMERICS_VERSION = 2
"""Part of every cell id. Raise it with a change that moves the numbers a cell ends with although its settings stay the
same (initialisation, sampling order, augmentation, an objective's formula, the optimiser); results trained before are
then no longer taken for the new ones. A change that only moves speed, memory or logging leaves it alone."""

BUILT_IN_CODE = frozenset(
    {
        # Pair weights: con, lin, sig, lin-ms, sig-ms.
        *("464a9a0ca5bb", "d781aa98e3f4", "e6168a42cc17", "30b6e020e141", "ef837240cc33"),
        # Triplet weights: con, nca, cir.
        *("7925626cec32", "b8d41e6bc660", "f8c0aaa2606c"),
        # Baselines: infonce, sigmoid.
        *("5cc8b6f47b00", "597bd1c720fe"),
    }
)
"""Hashes of the source of the registered functions that `NUMERICS_VERSION` speaks for. Of any other, be it added or one
of these that was edited, the file that defines it is part of the ids of the cells that use it. After an edit that
cannot move a number record the new hash here; after one that can, raise the version too."""
