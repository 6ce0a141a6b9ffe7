"""The search for each objective's constants: the `tune` block of a sweep file, its candidates, and how they ended.

Nothing here trains. `runners.launch.tuning` carries the search out.
"""

from goal_sweep.sweeps.tuning.block import Domain, TuneConfig
from goal_sweep.sweeps.tuning.space import Dimension, Space, dimensions_of
from goal_sweep.sweeps.tuning.trail import Candidate, Trail
