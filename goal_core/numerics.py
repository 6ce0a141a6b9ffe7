"""The part of the code that enters a cell's id: the version of the arithmetic, and which weights it covers."""

from __future__ import annotations

NUMERICS_VERSION = 1
"""Part of every cell id. Raise it with a change that moves the numbers a cell ends with although its settings stay the
same (initialisation, sampling order, augmentation, an objective's formula, the optimiser); results trained before are
then no longer taken for the new ones. A change that only moves speed, memory or logging leaves it alone."""

BUILT_IN_CODE = frozenset(
    {
        # Pair weights: con, lin, sig, lin-ms, sig-ms.
        *("8bc6c8dbc251", "5c26ca26a421", "b852cd849a03", "69a616ada502", "c5b236935504"),
        # Triplet weights: con, nca, cir.
        *("049b275bea20", "24724f9cedbc", "1020702c3516"),
    }
)
"""Digests of the registered functions that `NUMERICS_VERSION` speaks for (see `source_digest`). The code of any other
registered function is part of the ids of the cells that use it, be it added or one of these that was edited. After an
edit that cannot move a number record the new digest here; after one that can, raise the version too."""
