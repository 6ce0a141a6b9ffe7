"""Trained models to query, and what a plugin needs to register an image backbone, a text encoder or a framework."""

from goal_sweep.goal_core.evaluation.trained_model import RetrievalModel
from goal_sweep.goal_core.evaluation.trained_model import load_model as load
from goal_sweep.goal_core.models.config import ModelConfig
from goal_sweep.goal_core.models.frameworks import Framework, frameworks
from goal_sweep.goal_core.models.heads import Heads
from goal_sweep.goal_core.models.systems.vsepp import text_head
from goal_sweep.goal_core.models.weights import image_backbones, text_encoders

__all__ = [
    "Framework", "Heads", "ModelConfig", "RetrievalModel", "frameworks", "image_backbones", "load", "text_encoders",
    "text_head",
]  # fmt: skip
