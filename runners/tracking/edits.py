"""Find the settings, data and code that changed since earlier launches of a sweep, by comparing its runs in MLflow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from runners.tracking import schema as names
from runners.tracking.runs import TrackedRun
from runners.tracking.values import training_params, training_tags
from sweeps import Training
from sweeps.cells import DEFAULT

_PLACE = (names.STAGE, names.PAIR, names.TRIPLET, names.SEED, names.BACKBONE, names.FRAMEWORK, names.POINT)
"""Tags that a training shares with the earlier training that it replaces."""
_MAX_SHOWN = 5


def describe_edits(
    trainings: Iterable[Training], todo: Collection[Training], runs: Mapping[str, TrackedRun]
) -> list[str]:
    """Describe which trainings are new because a setting, the data or the code of a weight was edited.

    Args:
        trainings: the sweep's trainings.
        todo: those that will be trained.
        runs: every run of its experiment, by key.

    Returns:
        A line for each set of edits, with the number of trainings that it affects.
    """
    asked = {training.key for training in trainings}
    earlier = {
        tuple(run.tags.get(tag, "") for tag in _PLACE): run
        for key, run in sorted(runs.items(), key=lambda item: item[1].started)
        if key not in asked and _of_the_sweep(run.tags.get(names.ROLE, ""), run.tags.get(names.GRID, DEFAULT))
    }
    edits: Counter[str] = Counter()
    for training in todo:
        tags = training_tags(training)
        if not _of_the_sweep(tags[names.ROLE], tags.get(names.GRID, DEFAULT)):
            continue
        replaced = earlier.get(tuple(tags.get(tag, "") for tag in _PLACE))
        if training.key not in runs and replaced is not None:
            edits[_text(_differences(training, tags, replaced))] += 1
    return [
        f"edited since an earlier launch: {text}; {count} {'training starts' if count == 1 else 'trainings start'} "
        "over, and the earlier results are kept"
        for text, count in edits.items()
        if text
    ]


def _of_the_sweep(role: str, grid: str) -> bool:
    """Whether a run has the sweep's own settings, which somebody edited, and not those that a search tried."""
    return role == names.ROLE_CELL and DEFAULT in grid.split(",")


def _differences(training: Training, tags: Mapping[str, str], earlier: TrackedRun) -> Iterator[str]:
    now, then = training_params(training), earlier.params
    stages_now, stages_then = _stages(now), _stages(then)
    if stages_now != stages_then:
        yield f"stages {', '.join(stages_then)} -> {', '.join(stages_now)}"
    for name in sorted(now.keys() | then.keys()):
        values = [params.get(name, _default(name)) for params in (then, now)]
        # Of a name that only one of them has nothing can be said.
        if None not in values and values[0] != values[1]:
            yield f"{name} {values[0]} -> {values[1]}"
    fingerprint = names.DATA_FINGERPRINT
    if tags[fingerprint] != earlier.tags.get(fingerprint):
        yield f"the data ({earlier.tags.get(fingerprint)} -> {tags[fingerprint]})"


def _stages(params: Mapping[str, str]) -> list[str]:
    return sorted({name.split(".")[1] for name in params if name.startswith("stages.")})


def _default(name: str) -> str | None:
    """What a parameter that a run lacks stands for, if that is known."""
    return "as shipped" if name.endswith("_code") else None


def _text(differences: Iterator[str]) -> str:
    found = list(differences)
    more = f", and {len(found) - _MAX_SHOWN} more" if len(found) > _MAX_SHOWN else ""
    return ", ".join(found[:_MAX_SHOWN]) + more


def describe_code(trainings: Iterable[Training], runs: Mapping[str, TrackedRun], git_diff: str) -> str:
    """Describe how many finished results were computed without the uncommitted changes of the current source tree.

    Args:
        trainings: the sweep's trainings.
        runs: every run of its experiment, by key.
        git_diff: digest of the tree's uncommitted changes, as in `goal.git_diff`; empty if there are none.

    Returns:
        One line, or an empty text if there is nothing to report.
    """
    done = [
        runs[one.key] for one in trainings if one.key in runs and runs[one.key].tags.get(names.STATUS) == names.DONE
    ]
    without = sum(run.tags.get(names.GIT_DIFF, "") != git_diff for run in done)
    if not git_diff or not without:
        return ""
    return (
        f"the source tree has uncommitted changes that {without} finished trainings ran without "
        "(--force repeats finished trainings)"
    )
