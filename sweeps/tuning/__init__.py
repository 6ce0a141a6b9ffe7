"""The search for each objective's constants: the `tune` block of a sweep file, and the candidates that it asks for.

Nothing here trains or knows a score. `runners.launch.tuning` carries the search out.
"""

from sweeps.tuning.block import Domain, StopEarly, TuneConfig
from sweeps.tuning.space import Candidate, Dimension, Space

__all__ = ["Candidate", "Dimension", "Domain", "Space", "StopEarly", "TuneConfig"]
