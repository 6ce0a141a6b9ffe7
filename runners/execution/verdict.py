"""Who is at fault when a worker died or hung: decided from the store when its unit starts again.

A process that dies without a word takes all its trainings with it, and at most one of them is at fault. What the store
shows decides:

1. The machine was lost, or a training of the process had saved a state since it started: nobody is charged, and the
   unit goes on together. Every restart begins later than the one before, so this ends.
2. Otherwise, if the process trained several cells, each of them is a suspect. Suspects are tried in groups of half the
   size, each only until it has saved a state; a group that dies is halved again. So a unit of 15 finds the cell at
   fault after four further deaths, and the healthy ones lose no more than an epoch for each.
3. Otherwise the cell was alone, and it is charged. It is tried again, alone and after all others of its unit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from goal_sweep.goal_core.basics.atomic import DamagedError
from goal_sweep.goal_core.training import TrainingFailed
from goal_sweep.runners.store import Attempt, Store, TrainingFolder, was_cut_off
from goal_sweep.sweeps import Training

DIED = "its worker process died"


@dataclass(slots=True)
class Verdict:
    """How to go on with a unit whose worker may have died."""

    suspects: list[Sequence[Training]] = field(default_factory=list)
    """Groups to try one after the other, each until it has saved a state."""
    alone: list[Training] = field(default_factory=list)
    """Trainings that died alone; they come last, one at a time."""
    charged: list[TrainingFailed] = field(default_factory=list)
    """The deaths that were charged now."""


def judge(
    store: Store, trainings: Iterable[Training], launch_id: str, node_lost: Callable[[str], bool] = lambda node: False
) -> Verdict:
    """Find out how the workers before this one ended, and charge those that died alone without progress.

    Args:
        store: the store.
        trainings: the unit's trainings.
        launch_id: the launch; what other launches left behind says nothing about the cells.
        node_lost: whether the machine of a given id is gone.
    """
    verdict = Verdict()
    processes: dict[tuple[str, int, int], dict[Training, Attempt]] = defaultdict(dict)
    for training in trainings:
        folder = store.folder(training)
        try:
            attempt = None if folder.result() else folder.attempts.newest()
        except (OSError, DamagedError):
            continue  # the claim reports it
        if attempt is not None and attempt.launch_id == launch_id and was_cut_off(attempt):
            processes[attempt.host, attempt.pid, attempt.shared_by][training] = attempt
        elif attempt is not None and attempt.died and attempt.charged:
            verdict.alone.append(training)
    suspects: dict[Training, Attempt] = {}
    for (_, _, size), attempts in processes.items():
        blameless = any(_progressed(store, *one) for one in attempts.items()) or all(
            node_lost(node) for node in {attempt.node for attempt in attempts.values()}
        )
        if size > 1 and not blameless:
            suspects |= attempts
            continue
        for training, attempt in attempts.items():
            reason = attempt.reason or DIED
            _end(store.folder(training), attempt, reason, charged=not blameless)
            if not blameless:
                verdict.alone.append(training)
                verdict.charged.append(TrainingFailed(key=training.key, kind="died", reason=reason, trace=""))
    verdict.suspects = _halves(suspects)
    return verdict


def _progressed(store: Store, training: Training, attempt: Attempt) -> bool:
    try:
        return attempt.progressed or store.folder(training).progressed(attempt.n)
    except (OSError, DamagedError):
        return True  # nobody is charged for what cannot be read


def _end(folder: TrainingFolder, attempt: Attempt, reason: str, *, charged: bool) -> None:
    with suppress(OSError, DamagedError):  # what the store cannot record costs nothing
        folder.end_for(attempt.launch_id, "failed" if charged else "lost", reason, charged=charged, died=True)


def _halves(suspects: dict[Training, Attempt]) -> list[Sequence[Training]]:
    """Split the suspects into groups of at most half the size in which they died, the largest groups first."""
    by_size: dict[int, list[Training]] = defaultdict(list)
    for training, attempt in suspects.items():
        by_size[attempt.shared_by].append(training)
    groups: list[Sequence[Training]] = []
    for size, members in sorted(by_size.items(), key=lambda item: item[0], reverse=True):
        step = -(-size // 2)
        groups += [members[start : start + step] for start in range(0, len(members), step)]
    return groups
