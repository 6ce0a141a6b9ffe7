"""A sweep with its data and its store opened, so that its trainings have keys. Most commands start from one."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from shutil import copyfile

from goal_sweep.goal_core.basics.atomic import make_folder, replace_with
from goal_sweep.goal_core.basics.errors import CombinedError, ConfigError, GoalError, listening, warn
from goal_sweep.goal_core.data import Dataset, Progress, SplitCounts, published_counts
from goal_sweep.goal_core.data.formats.index import index_path
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.evaluation.feature_files import check_origin
from goal_sweep.goal_core.evaluation.metrics import few_images
from goal_sweep.goal_core.models.frameworks import brings_tokenizer, initial_weights_id
from goal_sweep.runners.launch.tuning import describe, ends_of, replay
from goal_sweep.runners.launch.view import SweepProgress
from goal_sweep.runners.planning.processes import apart
from goal_sweep.runners.store import Store, TrainingStatus
from goal_sweep.runners.tracking.uri import resolve_uri
from goal_sweep.sweeps import ResolvedSweep, SweepConfig, Training


@dataclass(frozen=True, kw_only=True)
class OpenedSweep(ResolvedSweep):
    """A sweep that is ready to be planned, shown or launched."""

    dataset: Dataset
    store: Store

    @property
    def notes(self) -> list[str]:
        """What a user should know of the data."""
        words = () if brings_tokenizer(self.config.model.models[0]) else self.dataset.word_notes
        few = few_images(number := self.dataset.splits["test"].num_images)
        return [*self.dataset.notes, *words, *[f"only {number} test images: {few}"] * bool(few)]

    def prepare(self) -> None:
        """Make the store, and put the index of the data into it, so that no worker reads them all."""
        before = self.store.indexes
        self.store.prepare()
        own, kept = (index_path(self.config.data, folder) for folder in (before, self.store.indexes))
        if own != kept and own.exists():
            with suppress(OSError):  # without it the data are read again
                make_folder(kept.parent)
                replace_with(kept, partial(copyfile, own))

    def searched(self, *, retried: bool = False) -> OpenedSweep:
        """This sweep with what its search has proposed and chosen by now, as the store tells.

        Args:
            retried: failed candidates will be tried again, so they have not ended.
        """
        if self.config.tune is None:
            return self
        attempts = self.config.resources.max_attempts
        return replay(self, lambda trainings: ends_of(self.store, trainings, attempts, retried=retried))

    def statuses(self) -> dict[Training, TrainingStatus]:
        """The status of every training, read from the store."""
        return self.store.status(self.trainings, max_attempts=self.config.resources.max_attempts)

    def progress(self) -> SweepProgress:
        """The progress of the sweep, read from the store."""
        progress = SweepProgress(self.trainings, self.statuses())
        progress.phase = describe(self) if self.studies else ""
        return progress

    def unlike_published(self) -> str:
        """Which splits have not the published size of the data that `data.name` names; empty if all have."""
        published, lines = published_counts(self.config.data), []
        for name, split in self.dataset.splits.items():
            found = SplitCounts(images=split.num_images, captions=split.num_captions)
            if found != published.get(name, found):
                lines.append(f"{name} has {found}, but {self.dataset.name} as published has {published[name]}")
        name_it = "if no file is missing, give the data a name of its own, such as --set data.name=mine"
        return f"{'; '.join(lines)}; {name_it}" if lines else ""

    def wrong_at_once(self) -> list[GoalError]:
        """What is wrong and shows without work: batch sizes above the train split, trackers without their library."""
        specs = {one: find_spec(one) for one in self.config.tracking.also}
        lacking = [
            ConfigError(f"{one} is not installed; run: pip install 'goal-sweep[{one}]'", key="tracking.also")
            for one, spec in specs.items()
            if spec is None or spec.origin is None  # a folder of this name
        ]
        captions = self.dataset.splits["train"].num_captions
        limit = f"must be at most {captions}, the number of captions in the train split of {self.dataset.name!r}"
        too_large = [
            ConfigError(f"{limit}, got {stage.batch_size}", key=f"stages.{stage.name}.batch_size")
            for stage in self.config.stages
            if stage.batch_size > captions
        ]
        return [*lacking, *too_large]

    def check_trainable(self) -> None:
        """Check what would otherwise fail only in training: batch sizes, captions, weights, parts of plugins."""
        errors = self.wrong_at_once()
        try:
            self._check_parts()
        except GoalError as error:
            errors.append(error)
        if errors:
            raise errors[0] if len(errors) == 1 else CombinedError(errors)

    def _check_parts(self) -> None:
        if self.config.plugins:
            from goal_sweep.goal_core.objectives.trial import try_objective  # with torch

            for objective in dict.fromkeys(training.cell.objective for training in self.trainings):
                try_objective(objective)
        if self.config.plugins or "torch" in sys.modules:
            _check_weights(self.config, self.store.indexes, self.dataset)
            return
        # In a process of its own: a driver is small, and would keep torch and the models' memory to its end.
        apart(_check_weights, self.config, self.store.indexes)


def _check_weights(config: SweepConfig, indexes: Path, dataset: Dataset | None = None) -> None:
    from goal_sweep.goal_core.checkpoints.initial_model import check_initial_weights  # with torch

    dataset, lines = dataset or open_dataset(config.data, indexes), dict[str, None]()  # that of several backbones, once
    with listening(lines.setdefault):
        for model in config.model.models:
            check_initial_weights(model, config.data, dataset)
    for line in lines:
        warn(f"data: {line}")


def open_sweep(
    config: SweepConfig, *, renew: bool = True, progress: Progress = lambda done, total: None
) -> OpenedSweep:
    """Open everything that the cell ids of a loaded sweep depend on.

    Args:
        renew: look at every image of the data; else they are taken for what they were when they were indexed.
    """
    results = Store(config.store)
    resolve_uri(config.tracking.uri, results.root)  # an unsupported URI shows here, before anything is trained
    dataset = open_dataset(config.data, results.indexes, renew=renew, progress=progress)
    check_origin(config.data, [backbone.name for backbone in config.model.backbones])
    weights = {model.backbone.name: initial_weights_id(model) for model in config.model.models}
    return OpenedSweep(
        config=config, data_fingerprint=dataset.fingerprint, weights=weights, dataset=dataset, store=results
    ).searched()
