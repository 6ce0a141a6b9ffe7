"""What to run: sweep files, their checks, and their expansion into cells, trainings and units.

`runners` imports this package, and `analysis` its vocabulary of results; it sees `goal_core` alone.
"""

from goal_sweep.sweeps.axes import Axis
from goal_sweep.sweeps.cells import Block, Cell, ResolvedSweep, Training
from goal_sweep.sweeps.checks import STAGE_ORDER
from goal_sweep.sweeps.clusters import ClusterConfig, KubernetesConfig, RayConfig, SlurmConfig
from goal_sweep.sweeps.identity import content_id, from_mapping, to_mapping
from goal_sweep.sweeps.reading.document import Problem, SweepError
from goal_sweep.sweeps.reading.load import (
    ClusterSweep,
    SweepNotFoundError,
    find_sweep,
    list_shipped,
    load_for_cluster,
    load_places,
    load_sweep,
)
from goal_sweep.sweeps.schema import (
    ExecutionConfig,
    ResourceConfig,
    SweepConfig,
    SweepModel,
    SweepObjectives,
    SweepPlaces,
)
from goal_sweep.sweeps.trackers import Tracker, trackers
from goal_sweep.sweeps.tuning import Candidate, Space, Trail, TuneConfig
from goal_sweep.sweeps.units import Unit, pack, pack_chain
