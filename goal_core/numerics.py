"""The version of the computation that turns a cell's settings into a trained model."""

from __future__ import annotations

NUMERICS_VERSION = 1
"""Part of every cell id. Raise it with a change that alters a cell's final numbers although its settings stay the same
(initialisation, sampling order, augmentation, an objective's formula, the optimiser); results from before the change
are then no longer taken for new ones. A change of speed, memory or logging alone leaves it as it is."""
