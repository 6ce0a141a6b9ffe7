"""The version of the arithmetic that turns a cell's settings into a trained model."""

from __future__ import annotations

NUMERICS_VERSION = 1
"""Part of every cell id. Raise it with a change that moves the numbers a cell ends with although its settings stay the
same (initialisation, sampling order, augmentation, an objective's formula, the optimiser); results trained before are
then no longer taken for the new ones. A change that only moves speed, memory or logging leaves it alone."""
