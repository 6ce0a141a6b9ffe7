"""What has changed since earlier launches of a sweep: settings, data and code, as its runs in MLflow remember them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from runners.tracking import schema as names
from runners.tracking.runs import TrackedRun
from runners.tracking.values import training_params, training_tags
from sweeps import Training

_PLACE = (names.STAGE, names.PAIR, names.TRIPLET, names.SEED, names.BACKBONE, names.FRAMEWORK)
"""Tags in which a training and the one it takes the place of agree."""
_MAX_SHOWN = 5


def describe_edits(trainings: Iterable[Training], runs: Mapping[str, TrackedRun]) -> list[str]:
    """Say which trainings are new because a setting, the data or a weight's code was edited.

    Args:
        trainings: the sweep's.
        runs: every run of its experiment, by key.

    Returns:
        A line for each set of edits, with how many trainings it concerns.
    """
    asked = {training.key: training for training in trainings}
    earlier = {
        tuple(run.tags.get(tag, "") for tag in _PLACE): run
        for key, run in sorted(runs.items(), key=lambda item: item[1].started)
        if key not in asked
    }
    edits: Counter[str] = Counter()
    for key, training in asked.items():
        tags = training_tags(training)
        replaced = earlier.get(tuple(tags[tag] for tag in _PLACE))
        if key not in runs and replaced is not None:
            edits[_text(_differences(training, tags, replaced))] += 1
    return [
        f"edited since an earlier launch: {text}; {count} trainings start anew, and the earlier results are kept"
        for text, count in edits.items()
        if text
    ]


def _differences(training: Training, tags: Mapping[str, str], earlier: TrackedRun) -> Iterator[str]:
    now, then = training_params(training), earlier.params
    for name in sorted(now.keys() | then.keys()):
        # A name that only one of them has came or went with a version of goal-sweep, unless it tells of edited code.
        known = (name in now and name in then) or name.endswith("_code")
        if known and now.get(name) != then.get(name):
            yield f"{name} {then.get(name, 'as shipped')} -> {now.get(name, 'as shipped')}"
    fingerprint = names.DATA_FINGERPRINT
    if tags[fingerprint] != earlier.tags.get(fingerprint):
        yield f"the data ({earlier.tags.get(fingerprint)} -> {tags[fingerprint]})"


def _text(differences: Iterator[str]) -> str:
    found = list(differences)
    more = f", and {len(found) - _MAX_SHOWN} more" if len(found) > _MAX_SHOWN else ""
    return ", ".join(found[:_MAX_SHOWN]) + more


def describe_code(trainings: Iterable[Training], runs: Mapping[str, TrackedRun], git_diff: str) -> str:
    """Say how many finished results lack the uncommitted changes of the source tree that runs now.

    Args:
        trainings: the sweep's.
        runs: every run of its experiment, by key.
        git_diff: digest of the tree's uncommitted changes, as `goal.git_diff`; empty when there are none.

    Returns:
        A line; empty when nothing is to be said.
    """
    done = [runs[one.key] for one in trainings if one.key in runs and runs[one.key].tags[names.STATUS] == names.DONE]
    without = sum(run.tags.get(names.GIT_DIFF, "") != git_diff for run in done)
    if not git_diff or not without:
        return ""
    return (
        f"the source tree has uncommitted changes that {without} finished trainings ran without "
        "(--force trains finished ones anew)"
    )
