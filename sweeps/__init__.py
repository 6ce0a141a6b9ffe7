"""What to run: sweep files, their checks, and their expansion into cells, trainings and units.

`runners` imports this package, and `analysis` its vocabulary of results; it sees `goal_core` alone.
"""

from sweeps.axes import Axis
from sweeps.cells import Block, Cell, ResolvedSweep, Training
from sweeps.checks import STAGE_ORDER
from sweeps.clusters import ClusterConfig, KubernetesConfig, RayConfig, SlurmConfig
from sweeps.identity import content_id, from_mapping, to_mapping
from sweeps.reading.load import (
    ClusterSweep,
    Running,
    SweepNotFoundError,
    find_sweep,
    list_shipped,
    load_for_cluster,
    load_sweep,
)
from sweeps.reading.tree import Problem, SweepError
from sweeps.schema import ExecutionConfig, ResourceConfig, SweepConfig, SweepModel, SweepObjectives
from sweeps.tuning import Candidate, Space, StopEarly, Trail, TuneConfig
from sweeps.units import Unit, pack, pack_chain
