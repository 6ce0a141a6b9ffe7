"""Read sweep files: strict YAML, `extends`, `--set` and environment variables become one checked `SweepConfig`.

Only `sweeps` itself imports this room. Other packages import `load_sweep` and its errors from `sweeps`.
"""

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
