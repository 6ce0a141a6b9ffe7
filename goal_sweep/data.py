"""What a plugin needs to register an importer, which reads data of any layout."""

from goal_sweep.goal_core.data.dataset import Row, importers

__all__ = ["Row", "importers"]
