"""The science of goal-sweep: objectives, data, models, training and evaluation of image-text retrieval.

It needs torch and its companions only, and imports neither Ray nor MLflow nor pydantic. Its rooms build on each other
in this order: `objectives` and `data`; `models`; `frameworks`; `checkpoints`; `evaluation`; `training` and `official`.
"""

from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.goal_core.basics.numerics import NUMERICS_VERSION

__all__ = ["NUMERICS_VERSION", "GoalError"]
