"""Trained models to query, and what a plugin needs to register an image backbone."""

from goal_core.evaluation.trained_model import RetrievalModel
from goal_core.evaluation.trained_model import load_model as load
from goal_core.models.weights import image_backbones

__all__ = ["RetrievalModel", "image_backbones", "load"]
