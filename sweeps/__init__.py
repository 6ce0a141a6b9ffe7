"""What to run: sweep files, their checks, and their expansion into cells and units."""

from sweeps.cells import Cell, CellStage, expand
from sweeps.checks import STAGE_ORDER
from sweeps.identity import content_id
from sweeps.mapping import config_from_mapping, config_to_mapping, from_mapping, to_mapping
from sweeps.reading.load import load_sweep
from sweeps.reading.problems import Problem, SweepError
from sweeps.reading.shipped import SweepNotFoundError, find_sweep, list_shipped
from sweeps.schema import (
    ExecutionConfig,
    ResourceConfig,
    SweepConfig,
    SweepModel,
    SweepObjectives,
)
from sweeps.units import Unit, pack

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
