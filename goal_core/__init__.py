"""The science of goal-sweep: objectives, data, models, training and evaluation of image-text retrieval.

It needs torch and its companions only, and imports neither Ray nor MLflow nor pydantic. Its rooms build on each other
in this order: `objectives` and `data`; `models`; `checkpoints`; `evaluation`; `training` and `official`. A room exports
what loads without torch; everything else is imported from its module.
"""

if __name__ != "goal_sweep.goal_core":
    raise ImportError(
        f"{__name__!r} would be a second copy of this package with registries of its own; import goal_sweep.goal_core"
    )
