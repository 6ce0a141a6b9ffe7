"""The science of goal-sweep: objectives, data, models, training and evaluation of image-text retrieval.

Needs torch and its companions only; neither Ray nor MLflow nor pydantic is imported from here.
"""

from goal_core.errors import GoalError
from goal_core.numerics import NUMERICS_VERSION

__all__ = ["NUMERICS_VERSION", "GoalError"]
