"""The published systems: how each builds the parts of its models.

`sweeps` and the command line list them; `checkpoints` and the rooms above it build models with them.
"""

from goal_core.models.config import ModelConfig
from goal_core.models.frameworks.framework import Framework
from goal_core.models.frameworks.vse_infty import VseInfty
from goal_core.models.frameworks.vsepp import Vsepp
from goal_core.models.frameworks.xvlm import Xvlm

FRAMEWORKS: dict[str, Framework] = {framework.name: framework for framework in (Vsepp(), VseInfty(), Xvlm())}
"""By the name in sweep files."""


def framework_of(model: ModelConfig) -> Framework:
    """The framework of a model."""
    return FRAMEWORKS[model.framework]
