"""The folder of a training in the store: its files, the right to write them, how its attempts end, its status."""

from runners.store.trainings.endings import end_attempt, forgive
from runners.store.trainings.files import LOG, SUSPECT, TrainingFiles
from runners.store.trainings.folder import AlreadyDoneError, TrainingFolder
from runners.store.trainings.status import State, StatusReader, TrainingStatus

__all__ = [
    "LOG",
    "SUSPECT",
    "AlreadyDoneError",
    "State",
    "StatusReader",
    "TrainingFiles",
    "TrainingFolder",
    "TrainingStatus",
    "end_attempt",
    "forgive",
]
