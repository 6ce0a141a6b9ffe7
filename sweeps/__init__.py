"""What to run: sweep files, their checks, and their expansion into cells, trainings and units.

`runners` imports this package, and `analysis` its vocabulary of results; it sees `goal_core` alone.
"""

if __name__ != "goal_sweep.sweeps":
    raise ImportError(f"{__name__!r} would be a second copy of this package; import goal_sweep.sweeps")

from goal_sweep.sweeps.cells import ResolvedSweep, Training
from goal_sweep.sweeps.reading.document import SweepError
from goal_sweep.sweeps.reading.load import find_sweep, list_shipped, load_sweep
from goal_sweep.sweeps.schema import ExecutionConfig, ResourceConfig, SweepConfig, SweepObjectives, SweepPlaces
from goal_sweep.sweeps.tuning import Candidate, Study
from goal_sweep.sweeps.units import Unit, pack
