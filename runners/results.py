"""The results table of a sweep: a row for each training, which tracking shows and `analysis` reads.

It is a Parquet file in the store, kept up to date by reading again only what has changed. Everything in it follows from
the sweep and the store, so it can be written again at any time.
"""

from __future__ import annotations

import hashlib
import io
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from goal_sweep.goal_core.basics.atomic import DamagedError, StorageError
from goal_sweep.goal_core.basics.errors import ConfigError, printable
from goal_sweep.goal_core.basics.files import parquet_table
from goal_sweep.goal_core.checkpoints.names import RANKS
from goal_sweep.goal_core.evaluation.metrics import TEST, VAL
from goal_sweep.goal_core.training import below_warmup, weak_objective
from goal_sweep.runners.store import BEST, LOG, Attempt, Store, TrainingStatus
from goal_sweep.runners.store.provenance import gather
from goal_sweep.sweeps import ResolvedSweep, SweepConfig, SweepPlaces, Training
from goal_sweep.sweeps.axes import place_of
from goal_sweep.sweeps.identity import flat_text, from_mapping
from goal_sweep.sweeps.results import COLUMNS, EPOCHS, HEADER_KEY, SETTING, Header, Requested

_TYPES = {"string": pa.string(), "int64": pa.int64(), "double": pa.float64(), "binary": pa.binary()}
_OTHER_TYPES = {SETTING: pa.string(), EPOCHS: pa.list_(pa.field("element", pa.float64()))}
"""Of other columns, by the beginnings of their names; the rest are numbers. An element is called as Parquet calls it,
so that reading gives the same schema."""
_MEASURED = (VAL, TEST, EPOCHS)
_DONE_AS = ("training", "status", "attempts", "ended", "reason")
"""What a finished training's row was read from: another result has another end. Others are always read again, and so is
one of which a file is damaged, as its reason says."""
_DIGEST = b"sha256"
"""Key of the header's digest in the file's metadata. Parquet itself has checksums of its pages alone."""
_BATCH = 500
_NAMES = list(COLUMNS)
STORED = _NAMES[_NAMES.index("status") :]
"""The fixed columns that come from the store. Those before them follow from the sweep."""
DIFF_DIGITS = 12
"""Hex digits of the digest of uncommitted changes, enough for people to compare."""
_MAKE_MODELS = ("data", "model", "objectives", "seeds", "stages", "precision", "axes", "tune")
"""The settings that make a sweep's models."""
_MAX_SHOWN = 5


@dataclass(frozen=True, slots=True)
class ResultsTable:
    """A results table."""

    header: Header
    table: pa.Table
    content: bytes

    @classmethod
    def of(cls, header: Header, table: pa.Table) -> ResultsTable:
        """Write a table as the content of a file; equal tables give equal bytes."""
        file, stated = io.BytesIO(), header.as_json()
        described = table.combine_chunks().replace_schema_metadata({HEADER_KEY: stated, _DIGEST: _digest(stated)})
        pq.write_table(described, file, compression="zstd", write_page_checksum=True)
        return cls(header, table, file.getvalue())

    @classmethod
    def parse(cls, content: bytes, source: str) -> ResultsTable:
        """Read the content of a results file. Raises `DamagedError` where it is damaged, or of another format."""
        try:
            table = parquet_table(io.BytesIO(content), page_checksum_verification=True)
            stated = (table.schema.metadata or {}).get(HEADER_KEY, b"")
            header = Header.parse(stated)
        except (pa.ArrowException, OSError, ConfigError) as error:
            raise DamagedError(f"{source} is not a results table: {error}") from error
        if table.schema.metadata.get(_DIGEST) != _digest(stated):
            raise DamagedError(f"{source} is damaged: its header does not match its checksum")
        return cls(header, table, content)

    def rows(self, columns: Iterable[str] | None = None) -> Iterator[dict[str, Any]]:
        """The rows one after the other: all their columns, or those whose names begin so."""
        wanted = None if columns is None else tuple(columns)
        names = [name for name in self.table.column_names if wanted is None or name.startswith(wanted)]
        for batch in self.table.select(names).to_batches(max_chunksize=_BATCH):
            yield from batch.to_pylist()


def read_results(store: Store, sweep: str) -> ResultsTable | None:
    """Read a sweep's table from the store; None where there is none, or none that this goal-sweep reads."""
    try:
        content = store.storage.read(store.results_file(sweep))
        return None if content is None else ResultsTable.parse(content, f"{store.location}: the table of {sweep}")
    except DamagedError:
        return None  # it follows from the results, so it is written again


def lost_results(before: ResultsTable | None, sweep: ResolvedSweep) -> int:
    """How many finished trainings of a sweep's table would leave it, because the sweep as it is now has not them."""
    asked = {training.key for training in sweep.trainings}
    rows = () if before is None else before.rows(("training", "status"))
    return sum(row["status"] == "done" and row["training"] not in asked for row in rows)


def update_results(store: Store, sweep: ResolvedSweep, *, must_write: bool = True) -> ResultsTable:
    """Bring a sweep's table in the store up to date. It is written only if something has changed.

    Args:
        must_write: whether a store that cannot be written is an error.
    """
    before = read_results(store, sweep.config.name)
    header, columns = results_of(store, sweep, before)
    if before is not None:
        if ResultsTable.of(replace(header, written=before.header.written), columns).content == before.content:
            return before
    table = ResultsTable.of(header, columns)
    try:
        if not store.exists:
            raise StorageError(f"the results folder {store.location} is gone")
        path = store.results_file(sweep.config.name)
        store.storage.make_folder(path.parent)
        store.storage.replace(path, table.content)
    except StorageError:
        if must_write:
            raise
    return table


def results_of(store: Store, sweep: ResolvedSweep, before: ResultsTable | None) -> tuple[Header, pa.Table]:
    """What the store has of a sweep now, which is not written; an earlier table spares reading what it has."""
    statuses = store.status(sweep.trainings, max_attempts=sweep.config.resources.max_attempts)
    asked = _table([asked_row(one) for one in sweep.trainings], [name for name in _NAMES if name not in STORED])
    stored = _stored(store, statuses, before)
    for name in stored.column_names:
        asked = asked.append_column(stored.schema.field(name), stored[name])
    return _header(sweep), asked.select([*COLUMNS, *(name for name in asked.column_names if name not in COLUMNS)])


def listed_again(header: Header, config: SweepPlaces) -> ResolvedSweep:
    """The sweep of a table, without its data.

    Args:
        config: has the places of the store and of tracking, which a table does not name.
    """
    asked = header.requested
    own = replace(from_mapping(SweepConfig, asked.config), store=config.store, tracking=config.tracking)
    return ResolvedSweep(
        config=own, data_fingerprint=asked.data_fingerprint, weights=asked.weights, studies=header.studies
    )


def _stored(store: Store, statuses: Mapping[Training, TrainingStatus], before: ResultsTable | None) -> pa.Table:
    """The columns from the store, in the order of the trainings: as before where nothing changed, else read."""
    known = [] if before is None else before.table.select(_DONE_AS).to_pylist()
    kept = {tuple(row.values()): number for number, row in enumerate(known)}
    places, changed = list[int](), list[Training]()
    for training, status in statuses.items():
        read_from = (training.key, status.state, status.attempts, status.result.get("finished"), "")
        is_kept = status.state == "done" and read_from in kept
        places.append(kept[read_from] if is_kept else len(known) + len(changed))
        changed += [] if is_kept else [training]
    fresh = _table(store.storage.each(lambda one: stored_row(store, one, statuses[one]), changed), STORED)
    if before is None or len(changed) == len(statuses):
        return fresh
    measured = [name for name in before.table.column_names if name.startswith(_MEASURED)]
    whole = pa.concat_tables([before.table.select([*STORED, *measured]), fresh], promote_options="default")
    return whole.take(places)


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _table(rows: Sequence[dict[str, Any]], fixed: Sequence[str]) -> pa.Table:
    """Rows as a table: some of the fixed columns, then all others that any row has."""
    others = dict.fromkeys(name for row in rows for name in row if name not in COLUMNS)
    types = {name: _TYPES[COLUMNS[name][0]] for name in fixed}
    types |= {name: _OTHER_TYPES.get(name.partition("/")[0] + "/", pa.float64()) for name in others}
    return pa.Table.from_pylist(rows, pa.schema(types.items()))


def _header(sweep: ResolvedSweep) -> Header:
    config = sweep.config
    stages = tuple(str(stage.name) for stage in config.stages)
    configurations = {
        stage: tuple(dict.fromkeys(place_of([one], config.axes, stages[: number + 1]) for one in config.configurations))
        for number, stage in enumerate(stages)
    }
    return Header(
        sweep=config.name,
        seeds=tuple(config.seeds),
        objectives=tuple(config.objectives.names),
        stages=stages,
        configurations=configurations,
        requested=sweep.requested,
        axes=config.axes,
        tune=config.tune,
        studies=() if sweep.is_searching else tuple(sweep.studies),
        written=time.time(),
        version=version("goal-sweep"),
    )


def asked_row(training: Training) -> dict[str, Any]:
    """The columns that follow from the sweep: which training it is, where it stands, and its settings."""
    cell = training.cell
    return {
        "training": training.key,
        "name": training.name,
        "cell": cell.id,
        "stage": training.stage.name,
        "dataset": cell.data.name,
        "framework": cell.model.framework,
        "backbone": cell.model.backbone.name,
        "pair": cell.objective.pair,
        "triplet": cell.objective.triplet,
        "variant": cell.objective.variant,
        "seed": cell.seed,
        "configuration": training.place,
        "grid": ",".join(training.grids),
        "role": "report" if training.number is None else "candidate",
        "candidate": training.number,
        "data_fingerprint": cell.data_fingerprint,
        **{SETTING + name: text for name, text in training.settings.items()},
    }


def stored_row(store: Store, training: Training, status: TrainingStatus) -> dict[str, Any]:
    """The columns that come from the store; without those of a damaged file, which the reason names."""
    folder, result, best = store.folder(training), status.result, status.result.get("best_epoch")
    attempts: list[Attempt] = []
    records: list[dict[str, Any]] = []
    ranks, reason = None, status.reason
    try:
        with suppress(StorageError):
            attempts = folder.attempts.all()
            records = folder.records(result)
            ranks = folder.stated(RANKS, result)
    except DamagedError as error:
        reason = reason or str(error)
    newest = attempts[-1] if attempts else Attempt(n=1, launch="", started=0.0)
    row: dict[str, Any] = {
        "status": status.state,
        "reason": printable(reason),
        "attempts": status.attempts,
        "best_epoch": best,
        "seconds": result.get("seconds"),
        "step_ms": sum(steps) / len(steps) if (steps := _values(records, "time/step_ms")) else None,
        "val_s": sum(passes) if (passes := _values(records, "time/val_s")) else None,
        "started": attempts[0].started if attempts else None,
        "ended": None if status.state == "running" else result.get("finished", newest.ended),
        "host": printable(newest.host),
        "device": printable(newest.device),
        "git_commit": newest.git_commit,
        "git_diff": newest.git_diff_sha256[:DIFF_DIGITS],
        "below_warmup": "",
        "weak_objective": "",
        "checkpoint": _path(folder.place(BEST, result)) if result else "",
        "log": _path(folder.folder / LOG) if status.attempts else "",
        "ranks": ranks,
    }
    if best is not None:
        row["below_warmup"] = below_warmup(records, training.stage.warmup_epochs, best)
        row["weak_objective"] = weak_objective(records, training.stage.warmup_epochs)
        row |= {key: value for key, value in result["metrics"].items() if key.startswith((VAL, TEST))}
        selected: Mapping[str, float] = next((one["metrics"] for one in records if one["epoch"] == best), {})
        row |= {key: value for key, value in selected.items() if key.startswith(VAL)}
    return row | _epochs(records)


def training_row(store: Store, training: Training, status: TrainingStatus) -> dict[str, Any]:
    """All columns of one training."""
    return asked_row(training) | stored_row(store, training, status)


def _epochs(records: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    names = dict.fromkeys(name for record in records for name in record["metrics"])
    columns = {EPOCHS + name: [record["metrics"].get(name, math.nan) for record in records] for name in names}
    if records:
        columns |= {EPOCHS + "epoch": [float(record["epoch"]) for record in records]}
        columns |= {EPOCHS + "time": [float(record.get("time", math.nan)) for record in records]}
    return columns


def _values(records: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [record["metrics"][name] for record in records if name in record["metrics"]]


def _path(place: Path) -> str:
    """The path of a file in the store, with forward slashes."""
    return "/".join(["cells", *place.parts[-3:]])


def edits_since(before: ResultsTable | None, sweep: ResolvedSweep) -> Iterator[str]:
    """What changed since an earlier launch of the sweep left its table, a line each."""
    if before is None:
        return
    if lost := lost_results(before, sweep):
        shown = changed_settings(before.header.requested, sweep.requested)
        yield (
            f"changed since an earlier launch: {shown or 'the code of objectives'}; {lost} finished "
            "trainings are not of this sweep any more. Their results are kept, but its report and MLflow page leave "
            "them out; under another name, both sweeps keep theirs"
        )
    if git_diff := gather().git_diff_sha256[:DIFF_DIGITS]:
        rows = before.rows(("status", "git_diff"))
        if without := sum(row["status"] == "done" and row["git_diff"] != git_diff for row in rows):
            changes = f"uncommitted changes that {without} finished trainings ran without"
            yield f"the source tree has {changes}; another --store repeats them"


def changed_settings(before: Requested, asked: Requested) -> str:
    """The settings that the last launch had otherwise, such as `stages.frozen.epochs 9 -> 5`; empty without any."""
    then, now = _settings(before), _settings(asked)
    differ = [name for name in sorted(then | now) if then.get(name) != now.get(name)]
    shown = [f"{name} {then.get(name, 'unset')} -> {now.get(name, 'unset')}" for name in differ[:_MAX_SHOWN]]
    return ", ".join(shown + ([f"and {len(differ) - _MAX_SHOWN} more"] if len(differ) > _MAX_SHOWN else []))


def _settings(requested: Requested) -> dict[str, str]:
    """What makes a sweep's models, as text by dotted name."""
    config = {name: value for name, value in requested.config.items() if name in _MAKE_MODELS}
    stages = {stage["name"]: stage for stage in config["stages"]}
    axes = {axis["key"]: axis["values"] for axis in config.pop("axes")}
    made = {**config, "stages": stages, "data_fingerprint": requested.data_fingerprint, "weights": requested.weights}
    return dict(flat_text(made | axes))
