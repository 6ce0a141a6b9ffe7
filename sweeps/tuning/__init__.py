"""The search for each objective's constants, which `runners.launch.tuning` carries out."""

from goal_sweep.sweeps.tuning.block import Domain, TuneConfig
from goal_sweep.sweeps.tuning.space import Dimension, Space, dimensions_of
from goal_sweep.sweeps.tuning.study import Candidate, Study
