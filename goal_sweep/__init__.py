"""goal-sweep as a library, under one name.

`goal_sweep.objectives` needs torch and numpy alone, and so does `recall`; nothing loads before its first use.

    import goal_sweep

    objective = goal_sweep.GradientObjective(pair="sig-ms", triplet="cir")
    goal_sweep.recall(images, texts, owners)
    goal_sweep.load("best-5.1.safetensors").encode_texts(["a red flag"])
    goal_sweep.launch("my_sweep.yaml").best().search("a red flag", images)
    goal_sweep.results("my_sweep.yaml")
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from goal_sweep import data, models, objectives, testing, trackers
    from goal_sweep.commands import launch, plan, report, status, validate
    from goal_sweep.frame import results
    from goal_sweep.goal_core.evaluation.retrieval import recall
    from goal_sweep.goal_core.evaluation.trained_model import load_model as load
    from goal_sweep.goal_core.objectives.gradient_objective import GradientObjective
    from goal_sweep.sweep_result import SweepResult
else:
    from importlib import import_module

    _HOMES = {
        "GradientObjective": "goal_core.objectives.gradient_objective:GradientObjective",
        "load": "goal_core.evaluation.trained_model:load_model",
        "SweepResult": "sweep_result:SweepResult",
        "recall": "goal_core.evaluation.retrieval:recall",
        "results": "frame:results",
        **{name: f"commands:{name}" for name in ("launch", "plan", "report", "status", "validate")},
    }

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, _, found = _HOMES.get(name, name).partition(":")
        loaded = import_module(f"{__name__}.{module}")
        return getattr(loaded, found) if found else loaded


__all__ = [
    "GradientObjective", "SweepResult", "data", "launch", "load", "models", "objectives", "plan", "recall", "report",
    "results", "status", "testing", "trackers", "validate",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
