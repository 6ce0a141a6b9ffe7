"""Which trained models a command means: checkpoints by path, or the best ones of sweeps on val.

A command line names models as ``MODEL...``, each of which is ``CHECKPOINT`` or ``SWEEP [OBJECTIVE]``. A word is a sweep
if it ends in ``.yaml`` (or ``+smoke``) or is the name of a shipped one; the word after a sweep is its objective, unless
it is a sweep or a path that exists. All else must be a path.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from goal_sweep.analysis.wording import count_text
from goal_sweep.goal_core.basics.errors import GoalError, nearest, printable
from goal_sweep.goal_core.checkpoints.names import BEST
from goal_sweep.goal_core.models.frameworks import initial_weights_id
from goal_sweep.runners.cli import completion
from goal_sweep.runners.cli.options import SweepArguments
from goal_sweep.runners.launch.tuning import ends_of, refreshed_results, replay
from goal_sweep.runners.store import Store
from goal_sweep.sweeps import ResolvedSweep, SweepConfig, SweepPlaces, load_sweep
from goal_sweep.sweeps.identity import is_in_id, to_mapping
from goal_sweep.sweeps.reading.load import is_named_sweep, list_shipped

if TYPE_CHECKING:
    from goal_sweep.analysis.results import SweepResults

_MODEL = "CHECKPOINT|SWEEP [OBJECTIVE]"
_HELP = "A best-*.safetensors or its folder; or a sweep, for its best model on val, and an objective of it."
_argument = partial(typer.Argument, metavar=_MODEL, autocompletion=completion.models)
Model = Annotated[list[str], _argument(help=_HELP)]
Models = Annotated[list[str], _argument(help=f"{_HELP} Several are evaluated as an ensemble.")]
ModelAndText = Annotated[list[str], _argument(metavar=f"{_MODEL} TEXT", help=f"{_HELP} Then what to look for.")]


class Chosen(NamedTuple):
    """A trained model that a command line names."""

    path: Path
    root: str | None = None
    """Where its sweep says that the data are; None of a checkpoint by its path, which says where they were."""


def models_of(
    words: Sequence[str], set_: list[str] | None, store: str | None, *, trusted: bool = False, seeds: int = 1
) -> list[Chosen]:
    """The models that a command line names. A line on stderr says what was chosen of each sweep.

    A sweep's plugins are run. Of a store in a bucket, the chosen checkpoints are fetched to this machine.

    Args:
        words: ``CHECKPOINT`` or ``SWEEP [OBJECTIVE]``, any number of them.
        set_, store, trusted: as of the sweeps' commands.
        seeds: how many seeds of a sweep's best model, the best on val first.

    Raises:
        GoalError: a word is none of these, or a sweep has no such model that is finished.
    """
    found, left, sweeps = list[Chosen](), [*words], 0
    while left:
        word = left.pop(0)
        if is_named_sweep(word):
            sweeps += 1
            objective = "" if not left or is_named_sweep(left[0]) or Path(left[0]).exists() else left.pop(0)
            found += _best(SweepArguments(word, set_, store, trusted=trusted), objective, seeds)
        elif Path(f"{word}.yaml").is_file():
            raise GoalError(f"{word} is no checkpoint; did you mean {word}.yaml?")
        elif Path(word).exists():
            found.append(Chosen(Path(word)))
        else:
            what = "is neither a checkpoint that exists nor a sweep (FILE.yaml or a shipped one)"
            raise GoalError(f"{word} {what}{nearest(word, list_shipped())}")
    if not sweeps and (set_ or trusted or seeds > 1):
        raise GoalError("--set, --trust-plugins and --ensemble are about a sweep; a checkpoint has its own settings")
    return found


def model_of(words: Sequence[str], set_: list[str] | None, store: str | None, *, trusted: bool = False) -> Chosen:
    """The one model that a command line names; else as `models_of`."""
    if words and not is_named_sweep(words[0]):
        models_of(words[:1], None, None)  # which says what is wrong with it
    if len(words) > (2 if words and is_named_sweep(words[0]) else 1):
        raise GoalError(f"give one model, a checkpoint or SWEEP [OBJECTIVE], got: {' '.join(words)}")
    (chosen,) = models_of(words, set_, store, trusted=trusted)
    return chosen


def stored_results(config: SweepPlaces) -> SweepResults:
    """The results of a sweep in its store, brought up to date."""
    from goal_sweep.analysis.results import sweep_results  # with pandas

    store = Store(config.store)
    if (found := refreshed_results(store, config)) is None:
        there = f"{config.name} in the store {store.location}"
        if store.storage.written(store.results_file(config.name)) is not None:
            raise GoalError(f"the results table of {there} is damaged; goal-sweep sync or launch writes it again")
        raise GoalError(f"no results of {there}; launch the sweep first, or give its --store")
    return sweep_results(found.header, found.table, store.root if store.root.is_dir() else None)


def trained_results(config: SweepConfig, sweep: SweepArguments) -> SweepResults:
    """The stored results of a sweep as its file and `--set` have it now, whatever was launched last.

    Seeds of the last launch count, too, unless `--set` names some. The data are not read, so their settings must be
    those of the last launch, but for places and names. Where all settings are, trainings of older keys count as well.

    Raises `GoalError` where nothing with these settings is finished.
    """
    from goal_sweep.analysis.results import sweep_results  # with pandas
    from goal_sweep.runners.results import changed_settings, read_results, results_of  # with pyarrow

    found, store = stored_results(config), Store(config.store)
    header, weights = found.header, dict(found.header.requested.weights)
    if not any(text.startswith("seeds") for text in sweep.set_ or ()):  # a launch may have had more, by --seeds
        config = replace(config, seeds=tuple(dict.fromkeys((*config.seeds, *header.seeds))))
    if to_mapping(config.model) != header.requested.config["model"]:
        for model in config.model.models:
            weights.setdefault(model.backbone.name, "")
            with suppress(GoalError):  # a file that has moved
                weights[model.backbone.name] = initial_weights_id(model)
    asked = ResolvedSweep(config=config, data_fingerprint=header.requested.data_fingerprint, weights=weights)
    if not (changed := changed_settings(header.requested, asked.requested)):
        return found
    of_data = (one.config["data"] for one in (header.requested, asked.requested))
    before, now = ({key: value for key, value in own.items() if is_in_id(f"data.{key}")} for own in of_data)
    if now == before:
        if config.tune is not None:
            asked = replay(asked, lambda trainings: ends_of(store, trainings, config.resources.max_attempts))
        table = results_of(store, asked, read_results(store, config.name))
        own = sweep_results(*table, store.root if store.root.is_dir() else None)
        if not own.counted.empty:
            return own
    other = "other settings, and none with these is finished" if now == before else "other data"
    there = f"the last launch of {config.name} in the store {config.store} had {other}"
    mend = f"launch it again, which trains only what is missing: {sweep.command('launch')}"
    raise GoalError(f"{there} (then -> here): {changed}; {mend}")


def _best(sweep: SweepArguments, objective: str, seeds: int) -> list[Chosen]:
    from goal_sweep.analysis.results import best_runs
    from goal_sweep.goal_core.evaluation.metrics import RSUM

    config = load_sweep(sweep.sweep, sweep.overrides, trusted=sweep.trusted)
    best, store, paths = best_runs(trained_results(config, sweep), objective), Store(config.store), []
    if len(best) < seeds:
        has = f"the best model of {config.name} has {len(best)} finished seeds, fewer than the {seeds} of --ensemble"
        more = f" --seeds +{seeds - len(config.seeds)}" if len(config.seeds) < seeds else ""
        raise GoalError(f"{has}; train others: {sweep.command('launch')}{more}")
    for run in best[:seeds].to_dict("records"):
        folder = store.folder_of(run["cell"], run["stage"], run["training"])
        paths.append(Chosen(folder.path(BEST), config.data.root))
        mean = f"the mean of {count_text(len(best), 'seed')}, {best[RSUM.val].mean():.1f}"
        said = f"{'a seed of the ' * (seeds > 1)}best on val by {mean}: {run['name']}"
        place = store.storage.shown(folder.place(BEST))
        print(printable(f"{said}, itself {run[RSUM.val]:.1f}, {place}"), file=sys.stderr)
    return paths
