"""What others write into the record of an attempt whose process cannot, because it died or its machine was at fault."""

from __future__ import annotations

import time
from dataclasses import replace

from runners.store.records import Outcome, was_cut_off
from runners.store.trainings.folder import TrainingFolder


def end_attempt(
    folder: TrainingFolder,
    launch_id: str,
    outcome: Outcome,
    reason: str,
    *,
    charged: bool,
    died: bool = False,
    out_of_memory: bool = False,
) -> bool:
    """Record how the newest attempt ended, on behalf of its process.

    The driver, or the worker that continues, calls this after a worker died, because the worker cannot.

    Args:
        folder: the training's folder.
        launch_id: the driver's launch; attempts of other launches are not changed.
        outcome: `failed`, `interrupted` or `lost`.
        reason: one line; the reason that the attempt has already, as after a hang, is kept.
        charged: whether it counts against `max_attempts`.
        died: whether its process died or hung.
        out_of_memory: whether memory ran out, and fewer pairs at a time may fit.

    Returns:
        Whether an attempt of that launch was ended that was running or cut off.
    """
    record = folder.attempts.newest()
    if record is None or record.launch_id != launch_id or not was_cut_off(record):
        return False
    ending = record.ending(
        outcome,
        ended=time.time(),
        reason=record.reason or reason,
        charged=charged,
        died=died,
        progressed=folder.progressed(record.n),
        out_of_memory=out_of_memory,
    )
    folder.attempts.update(ending)
    return True


def forgive(folder: TrainingFolder, launch_id: str, node: str) -> None:
    """Stop charging a training for its attempts on a machine that turned out to be at fault.

    Args:
        folder: the training's folder.
        launch_id: the driver's launch; attempts of other launches are not changed.
        node: Ray's id of the machine.
    """
    for record in folder.attempts.all():
        if record.launch_id == launch_id and record.node == node and record.charged:
            folder.attempts.update(replace(record, charged=False))
