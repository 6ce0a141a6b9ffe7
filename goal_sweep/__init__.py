"""goal-sweep as a library, under one name.

`goal_sweep.objectives` needs torch and numpy alone, and so does `recall`; nothing loads before its first use.

    import goal_sweep

    objective = goal_sweep.objectives.GradientObjective(pair="sig-ms", triplet="cir")
    goal_sweep.recall(images, texts, owners)
    goal_sweep.load("best-5.1.safetensors").encode_texts(["a red flag"])
    goal_sweep.results("my_sweep.yaml")
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from goal_sweep import data, models, objectives, testing, trackers
    from goal_sweep.frame import results
    from goal_sweep.goal_core.evaluation.retrieval import recall
    from goal_sweep.goal_core.evaluation.trained_model import load_model as load
else:
    from importlib import import_module

    _HOMES = {
        "recall": ("goal_sweep.goal_core.evaluation.retrieval", "recall"),
        "load": ("goal_sweep.goal_core.evaluation.trained_model", "load_model"),
        "results": ("goal_sweep.frame", "results"),
    }

    def __getattr__(name):
        if name in _HOMES:
            module, found = _HOMES[name]
            return getattr(import_module(module), found)
        if name in ("data", "models", "objectives", "testing", "trackers"):
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["data", "load", "models", "objectives", "recall", "results", "testing", "trackers"]
