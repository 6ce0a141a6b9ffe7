"""The table of a sweep as a Parquet file in the store, kept up to date by reading again only what has changed."""

from __future__ import annotations

import hashlib
import io
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from goal_sweep.goal_core.basics.atomic import DamagedError, StorageError
from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.goal_core.evaluation.metrics import TEST, VAL
from goal_sweep.runners.results.rows import STORED, asked_row, stored_row
from goal_sweep.runners.store import Store, TrainingStatus
from goal_sweep.sweeps import ResolvedSweep, SweepConfig, SweepPlaces, Training
from goal_sweep.sweeps.axes import place_of
from goal_sweep.sweeps.identity import from_mapping
from goal_sweep.sweeps.results import COLUMNS, EPOCHS, HEADER_KEY, SETTING, Header

_TYPES = {"string": pa.string(), "int64": pa.int64(), "double": pa.float64(), "binary": pa.binary()}
_MEASURED = (VAL, TEST, EPOCHS)
_DONE_AS = ("training", "status", "attempts", "ended", "reason")
"""What a finished training's row was read from: another result has another end. Others are always read again, and so is
one of which a file is damaged, as its reason says."""
_DIGEST = b"sha256"
"""Key of the header's digest in the file's metadata. Parquet itself has checksums of its pages alone."""
_BATCH = 500


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
            table = pq.read_table(io.BytesIO(content), page_checksum_verification=True)
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
        content = store.read_results(sweep)
        source = f"{store.location}: the results table of {sweep}"
        return None if content is None else ResultsTable.parse(content, source)
    except DamagedError:
        return None  # it follows from the results, so it is written again


def has_table(store: Store, sweep: str) -> bool:
    """Whether the store has a table of the sweep, be it readable or not."""
    try:
        return store.read_results(sweep) is not None
    except DamagedError:
        return True


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
    statuses = store.status(sweep.trainings, max_attempts=sweep.config.resources.max_attempts)
    before = read_results(store, sweep.config.name)
    asked = pa.Table.from_pylist([asked_row(one) for one in sweep.trainings], _asked_schema(sweep.trainings))
    stored = _stored(store, statuses, before)
    for name in stored.column_names:
        asked = asked.append_column(stored.schema.field(name), stored[name])
    columns = asked.select([*COLUMNS, *(name for name in asked.column_names if name not in COLUMNS)])
    header = _header(sweep)
    if before is not None:
        again = ResultsTable.of(replace(header, written=before.header.written), columns)
        if again.content == before.content:
            return before
    table = ResultsTable.of(header, columns)
    try:
        store.write_results(sweep.config.name, table.content)
    except StorageError:
        if must_write:
            raise
    return table


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
    places: list[int] = []
    changed: list[Training] = []
    for training, status in statuses.items():
        read_from = (training.key, status.state, status.attempts, status.result.get("finished"), "")
        is_kept = status.state == "done" and read_from in kept
        places.append(kept[read_from] if is_kept else len(known) + len(changed))
        changed += [] if is_kept else [training]
    rows = store.storage.each(lambda training: stored_row(store, training, statuses[training]), changed)
    fresh = pa.Table.from_pylist(rows, _stored_schema(rows))
    if before is None or len(changed) == len(statuses):
        return fresh
    measured = [name for name in before.table.column_names if name.startswith(_MEASURED)]
    whole = pa.concat_tables([before.table.select([*STORED, *measured]), fresh], promote_options="default")
    return whole.take(places)


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _asked_schema(trainings: Sequence[Training]) -> pa.Schema:
    names = dict.fromkeys(name for training in trainings for name in training.settings)
    fixed = [(name, _TYPES[kind]) for name, (kind, _) in COLUMNS.items() if name not in STORED]
    return pa.schema([*fixed, *((SETTING + name, pa.string()) for name in names)])


def _stored_schema(rows: Sequence[Mapping[str, Any]]) -> pa.Schema:
    names = dict.fromkeys(name for row in rows for name in row if name.startswith(_MEASURED))
    fixed = [(name, _TYPES[COLUMNS[name][0]]) for name in STORED]
    lists = pa.list_(pa.field("element", pa.float64()))  # as Parquet calls it, so that reading gives the same schema
    return pa.schema([*fixed, *((name, lists if name.startswith(EPOCHS) else pa.float64()) for name in names)])


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
