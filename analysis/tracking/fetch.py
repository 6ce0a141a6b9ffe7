"""Reads MLflow into one tidy frame: a row for each run of a cell and stage, and whether it counts.

No run is dropped: one that does not count stays in the frame, with the reason.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from analysis import run_schema as schema
from analysis.axes import Axis
from analysis.errors import AnalysisError, NoRunsError, first_line
from analysis.tracking.counting import Requested, mark_counted
from analysis.tracking.grids import placed
from analysis.tracking.places import artifact_place, database_file
from analysis.tracking.tuning_file import chosen, stated_budget
from analysis.tuning import Tuning

PAGE = 1000
"""Runs requested per page."""
_TAGS = (
    *(schema.TAG_CELL, schema.TAG_STAGE, schema.TAG_STAGE_KEY, schema.TAG_PAIR, schema.TAG_TRIPLET),
    *(schema.TAG_BACKBONE, schema.TAG_FRAMEWORK, schema.TAG_DATASET, schema.TAG_VARIANT),
    *(schema.TAG_STATUS, schema.TAG_REASON, schema.TAG_OBJECTIVE_KEY, schema.TAG_SETTINGS_KEY, schema.TAG_TRIPLETS),
    *(schema.TAG_GIT_COMMIT, schema.TAG_GIT_DIFF, schema.TAG_DATA_FINGERPRINT, schema.TAG_IMPORTED),
    *(schema.TAG_BELOW_WARMUP, schema.TAG_WEAK, schema.TAG_STACKED, schema.TAG_POINT, schema.TAG_GRID),
)
"""Tags that become columns, named without the ``goal.`` prefix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRuns:
    """Everything that tracking holds about one sweep."""

    tracking_uri: str
    """The MLflow tracking URI that it was read from."""
    experiment: str
    """The sweep's name, and that of its MLflow experiment unless a user renamed it."""
    parent_run_id: str | None
    """The sweep's parent run; None when tracking has none."""
    seeds: tuple[int, ...]
    """The seeds of the sweep, in order; those of all runs when the parent run does not state them."""
    objectives: tuple[tuple[str, str], ...]
    """The sweep's objectives, ``(pair, triplet)``; likewise."""
    stages: tuple[str, ...]
    """The sweep's stages, in training order; likewise."""
    runs: pd.DataFrame
    """A row for each run, oldest first: ``run_id``, ``run_name``, ``experiment_id``, ``start_ms``, ``artifact_uri``,
    the tags without their ``goal.`` prefix, ``seed`` (int; -1 when unreadable), every metric under its own name,
    ``has_all_tags`` (whether its tags place it in a table), ``requested`` (whether the sweep requests it now) and
    ``excluded`` (why the run does not count, or an empty string)."""
    settings: pd.DataFrame
    """The runs' parameters as text: a row for each run, indexed by ``run_id``; missing ones are empty strings."""
    notes: tuple[str, ...]
    """What a reader must know about the tracking data, one sentence each."""
    axes: tuple[Axis, ...] = ()
    """The sweep's settings with several values."""
    num_trainings: int | None = None
    """The number of trainings of a sweep with axes. Of others it follows from what is requested."""
    is_tuned: bool = False
    """Whether the sweep has a default and a tuned grid."""
    tuning: Tuning | None = None
    """What was tried and chosen; None for a sweep that is not tuned, or has not chosen yet."""
    budget: int | None = None
    """Candidates per objective of a tuned sweep; None where its parent run does not state it."""
    candidates: pd.DataFrame = field(default_factory=pd.DataFrame)
    """The runs that were tried while tuning, which are in no other frame: the tags without their ``goal.`` prefix,
    ``candidate`` (its number as text) and ``seed``; empty without any."""

    @property
    def grids(self) -> tuple[str, ...]:
        """The grids of a tuned sweep; none for others."""
        return schema.GRIDS if self.is_tuned else ()

    @property
    def main_grid(self) -> str:
        """The grid of which statistics over several blocks speak: the tuned one once it has a number; empty if none."""
        if not self.grids:
            return ""
        done = self.runs[self.runs["excluded"] == ""]["grid"]
        return schema.GRID_TUNED if done.str.contains(schema.GRID_TUNED).any() else schema.GRID_DEFAULT

    @property
    def chosen_settings(self) -> frozenset[str]:
        """The parameters in which the objectives of a tuned grid differ by design."""
        return frozenset() if self.tuning is None else frozenset(one.parameter for one in self.tuning.space)

    @property
    def tunes_variant(self) -> bool:
        """Whether the variant is among what was chosen, so that a tuned grid has objectives of several."""
        return "variant" in self.chosen_settings


def fetch_runs(tracking_uri: str, experiment: str) -> SweepRuns:
    """Read every run of a sweep, in pages, without changing anything.

    Args:
        tracking_uri: an MLflow tracking URI, for instance ``sqlite:////home/me/store/mlflow.db``.
        experiment: name of the sweep.

    Raises:
        AnalysisError: the store or the experiment does not exist or cannot be read.
        NoRunsError: the experiment does not contain a run of a cell.
    """
    _require_sqlite_file(tracking_uri)
    client = MlflowClient(tracking_uri=tracking_uri)
    try:
        found = _experiment(client, tracking_uri, experiment)
        with collector_paused():
            parents = list(_search(client, found.experiment_id, schema.ROLE_SWEEP))
            cells = list(_search(client, found.experiment_id, schema.ROLE_CELL))
            tried = list(_search(client, found.experiment_id, schema.ROLE_CANDIDATE))
    except MlflowException as error:
        raise AnalysisError(f"cannot read tracking at {tracking_uri}: {first_line(error)}") from error
    tried += [run for run in cells if schema.TAG_CANDIDATE in run.data.tags]
    cells = [run for run in cells if schema.TAG_CANDIDATE not in run.data.tags]
    if not cells and not tried:
        raise NoRunsError(f"experiment {experiment!r} in {tracking_uri} does not contain a run of a cell yet")
    settings = pd.DataFrame([run.data.params for run in cells], index=[run.info.run_id for run in cells]).fillna("")
    candidates = pd.DataFrame(
        [{**_row(run, tracking_uri), "candidate": run.data.tags.get(schema.TAG_CANDIDATE, "")} for run in tried]
    )
    of_grids = any(run.data.tags.get(schema.TAG_GRID, schema.GRID_FORMER) != schema.GRID_FORMER for run in cells)
    is_tuned = of_grids or not cells  # a sweep that does not tune any more keeps its candidates, but has no grids
    sweep = _assemble(
        tracking_uri,
        experiment,
        parents,
        _frame([_row(run, tracking_uri) for run in cells]),
        settings,
        candidates=candidates,
        tuning=chosen(tracking_uri, parents[-1], candidates) if is_tuned and parents else None,
        is_tuned=is_tuned,
    )
    renamed = f"The sweep's experiment is named {found.name!r} in MLflow; it was found by its {schema.TAG_SWEEP} tag."
    return sweep if found.name == experiment else replace(sweep, notes=(renamed, *sweep.notes))


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause Python's garbage collector while creating many objects that all stay alive.

    Each collection would visit all of them and free none: pausing halves the time to read ten thousand runs. If the
    collector is already paused, nothing changes.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _experiment(client: MlflowClient, tracking_uri: str, name: str) -> Any:
    """The sweep's experiment, found by its name, or by the sweep's tag if a user renamed it."""
    found = client.get_experiment_by_name(name)
    if found is not None and found.lifecycle_stage == "deleted":
        raise AnalysisError(f"experiment {name!r} in {tracking_uri} was deleted; goal-sweep sync restores it")
    if found is not None:
        return found
    experiments = client.search_experiments()
    tagged = [experiment for experiment in experiments if experiment.tags.get(schema.TAG_SWEEP) == name]
    if not tagged and experiments:
        query = f"tags.`{schema.TAG_ROLE}` = '{schema.ROLE_SWEEP}' AND tags.`{schema.TAG_SWEEP}` = '{name}'"
        parents = client.search_runs([experiment.experiment_id for experiment in experiments], query, max_results=1)
        with_parent = {run.info.experiment_id for run in parents}
        tagged = [experiment for experiment in experiments if experiment.experiment_id in with_parent]
    if not tagged:
        names = ", ".join(sorted(experiment.name for experiment in experiments)) or "none"
        raise AnalysisError(f"no experiment {name!r} in {tracking_uri}; it contains: {names}")
    return tagged[0]


def _require_sqlite_file(uri: str) -> None:
    """Reject a missing database, which MLflow would create: reading must not change anything."""
    path = database_file(uri)
    if path is not None and not path.is_file():
        raise AnalysisError(f"no tracking database at {path}")


def _search(client: MlflowClient, experiment_id: str, role: str) -> Iterator[Any]:
    token: str | None = None
    while True:
        page = client.search_runs(
            [experiment_id],
            filter_string=f"tags.`{schema.TAG_ROLE}` = '{role}'",
            max_results=PAGE,
            order_by=["attributes.start_time ASC"],
            page_token=token,
        )
        yield from page
        token = page.token
        if not token:
            return


def _row(run: Any, tracking_uri: str) -> dict[str, Any]:
    tags: dict[str, str] = run.data.tags
    missing = [tag for tag in schema.REQUIRED_CELL_TAGS if not tags.get(tag)]
    seed = tags.get(schema.TAG_SEED, "")
    has_seed = seed.removeprefix("-").isdigit()
    if not missing and not has_seed:
        missing = [f"readable seed ({seed!r})"]
    return {
        "run_id": run.info.run_id,
        "run_name": run.info.run_name or "",
        "experiment_id": str(run.info.experiment_id),
        "start_ms": int(run.info.start_time or 0),
        "artifact_uri": artifact_place(tracking_uri, run.info.artifact_uri or ""),
        **{tag.removeprefix("goal."): tags.get(tag, "") for tag in _TAGS},
        "seed": int(seed) if has_seed else -1,
        "missing_tags": ", ".join(missing),
        **run.data.metrics,
    }


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """The rows of runs; without a run, a frame that has their columns."""
    if rows:
        return pd.DataFrame(rows)
    texts = ("run_id", "run_name", "experiment_id", "artifact_uri", "missing_tags")
    kinds: dict[str, type] = dict.fromkeys((*texts, *(tag.removeprefix("goal.") for tag in _TAGS)), object)
    kinds |= {"start_ms": int, "seed": int} | dict.fromkeys(schema.TEST_METRICS, float)
    return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in kinds.items()})


def _assemble(
    tracking_uri: str,
    experiment: str,
    parents: list[Any],
    runs: pd.DataFrame,
    settings: pd.DataFrame,
    *,
    candidates: pd.DataFrame,
    tuning: Tuning | None,
    is_tuned: bool,
) -> SweepRuns:
    known = candidates if runs.empty else runs
    requested, notes = _requested(parents[-1].data.tags if parents else {}, known[known["missing_tags"] == ""])
    if is_tuned:
        requested, runs = replace(requested, is_tuned=True), placed(runs, settings, tuning)
    if len(parents) > 1:
        notes.insert(0, f"Tracking contains {len(parents)} parent runs of this sweep; the newest defines the sweep.")
    runs = mark_counted(runs, requested).reset_index(drop=True)
    data = sorted(set(runs[runs["excluded"] == ""]["data_fingerprint"]))
    if len(data) > 1:
        notes.append(
            f"Trainings on {len(data)} sets of data count, each in separate blocks (fingerprints {', '.join(data)}): "
            "the parent run does not state the sweep's data."
        )
    return SweepRuns(
        tracking_uri=tracking_uri,
        experiment=experiment,
        parent_run_id=parents[-1].info.run_id if parents else None,
        seeds=requested.seeds,
        objectives=tuple(requested.objectives),
        stages=requested.stages,
        runs=runs,
        settings=settings,
        notes=tuple(notes),
        axes=requested.axes,
        num_trainings=_axes(parents[-1].data.tags)[1] if parents else None,
        is_tuned=is_tuned,
        tuning=tuning,
        budget=tuning.budget if tuning is not None else stated_budget(parents[-1].data.tags if parents else {}),
        candidates=candidates,
    )


def _requested(tags: dict[str, str], tagged: pd.DataFrame) -> tuple[Requested, list[str]]:
    """The request in the parent run's tags (or, where these lack it, that of all runs), and notes on what they lack."""
    notes = []
    seeds = _listed(tags, schema.TAG_SEEDS)
    if seeds is None:
        notes.append("The parent run does not state the seeds; those of all runs are assumed.")
        seeds = sorted(set(tagged["seed"]))
    names = _listed(tags, schema.TAG_OBJECTIVES)
    if names is None:
        notes.append("The parent run does not state the objectives; those of all runs are assumed.")
        names = sorted(set(tagged["pair"] + "/" + tagged["triplet"]))
    objectives = [(str(name).partition("/")[0], str(name).partition("/")[2]) for name in names]
    stages = _listed(tags, schema.TAG_STAGES)
    if stages is None:
        stages = list(dict.fromkeys(tagged["stage"]))
    keys = _listed(tags, schema.TAG_OBJECTIVE_KEYS) or []
    requested = Requested(
        seeds=tuple(int(seed) for seed in seeds),
        objectives=dict(zip(objectives, keys if len(keys) == len(objectives) else [""] * len(objectives), strict=True)),
        stages=tuple(str(stage) for stage in stages),
        settings=frozenset(_listed(tags, schema.TAG_SETTINGS_KEYS) or ()),
        data_fingerprint=tags.get(schema.TAG_DATA_FINGERPRINT, ""),
        axes=_axes(tags)[0],
        objective_keys=frozenset(keys if len(keys) > len(objectives) else ()),
    )
    return requested, notes


def _axes(tags: dict[str, str]) -> tuple[tuple[Axis, ...], int | None]:
    """The axes in the parent run's tag, and the number of trainings; None where it has no such tag."""
    text = tags.get(schema.TAG_AXES)
    if text is None:
        return (), None
    try:
        stated = json.loads(text)
        return tuple(map(Axis.read, stated["axes"])), int(stated["trainings"])
    except (ValueError, TypeError, KeyError) as error:
        raise AnalysisError(f"tag {schema.TAG_AXES} of the parent run states no axes: {text!r}") from error


def _listed(tags: dict[str, str], tag: str) -> list[Any] | None:
    """The list in a tag of the parent run, with the tags that continue it; None when it lacks the tag."""
    if tag not in tags:
        return None
    found: list[Any] = []
    number, name = 1, tag
    while name in tags:
        try:
            value = json.loads(tags[name])
        except json.JSONDecodeError as error:
            raise AnalysisError(f"tag {name} of the parent run is not JSON: {tags[name]!r}") from error
        if not isinstance(value, list):
            raise AnalysisError(f"tag {name} of the parent run is not a JSON list: {tags[name]!r}")
        found += value
        number += 1
        name = f"{tag}.{number}"
    return found
