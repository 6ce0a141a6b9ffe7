"""What to run: sweep files, their checks, and their expansion into cells and units."""

from sweeps.checks import STAGE_ORDER
from sweeps.expand import Cell, CellStage, expand
from sweeps.ids import content_id
from sweeps.load import load_sweep
from sweeps.mapping import config_from_mapping, config_to_mapping, from_mapping, to_mapping
from sweeps.pack import Unit, pack
from sweeps.problems import Problem, SweepError
from sweeps.schema import (
    ExecutionConfig,
    ResourceConfig,
    SweepConfig,
    SweepModel,
    SweepObjectives,
)
from sweeps.shipped import SweepNotFoundError, find_sweep, list_shipped

__all__ = [
    "STAGE_ORDER",
    "Cell",
    "CellStage",
    "ExecutionConfig",
    "Problem",
    "ResourceConfig",
    "SweepConfig",
    "SweepError",
    "SweepModel",
    "SweepNotFoundError",
    "SweepObjectives",
    "Unit",
    "config_from_mapping",
    "config_to_mapping",
    "content_id",
    "expand",
    "find_sweep",
    "from_mapping",
    "list_shipped",
    "load_sweep",
    "pack",
    "to_mapping",
]
