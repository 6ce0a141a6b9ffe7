"""The part of the code that enters a cell's id: the version of the arithmetic, and which weights it covers."""

from __future__ import annotations

NUMERICS_VERSION = 2
"""Part of every cell id. Raise it with a change that moves the numbers a cell ends with although its settings stay the
same (initialisation, sampling order, augmentation, an objective's formula, the optimiser); results trained before are
then no longer taken for the new ones. A change that only moves speed, memory or logging leaves it alone."""

BUILT_IN_CODE = frozenset(
    {
        # Pair weights: con, lin, sig, lin-ms, sig-ms.
        *("519fc4f0e3b0", "5c26ca26a421", "f4621fbbe541", "69a616ada502", "09fc81a4057a"),
        # Triplet weights: con, nca, cir.
        *("686ca7ddf6b3", "75fbb42e6764", "e62316df8930"),
    }
)
"""Digests of the registered functions that `NUMERICS_VERSION` speaks for (see `source_digest`). The code of any other
registered function is part of the ids of the cells that use it, be it added or one of these that was edited. After an
edit that cannot move a number record the new digest here; after one that can, raise the version too."""
