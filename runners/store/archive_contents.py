"""Check what the files of one training say, when they come from an archive: types, ranges, and that they agree."""

from __future__ import annotations

import hashlib
import io
import math
import re
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.lib import format as npy

from goal_core.basics.atomic import DamagedError
from goal_core.basics.errors import GoalError
from goal_core.basics.sealed_json import parse_json
from goal_core.checkpoints import BEST, TRIPLETS
from goal_core.evaluation import RetrievalMetrics
from goal_core.training.cells.triplet_histogram import NUM_BINS
from runners.store.attempts import Attempt
from runners.store.result_content import METRICS, RESULT, is_count, is_number, is_time, result_problems
from sweeps import Training

_RECALLS = tuple(field.name for field in fields(RetrievalMetrics))
_METRIC = re.compile(r"[A-Za-z0-9_./-]{1,200}")
_MAX_METRICS = 500
_NOT_FINITE = ("nan", "inf", "-inf")
_MAX_TRIPLETS = 64 * 1024 * 1024
_ROUNDING = 1e-3


class ContentError(GoalError):
    """A file of an archive is not what an export writes."""


def parse_object(name: str, content: bytes) -> dict[str, Any]:
    """Parse a file that holds one JSON object, and verify its checksum if it has one.

    Raises:
        ContentError: it does not hold one, or does not match its checksum.
    """
    try:
        return parse_json(content, name)
    except DamagedError as error:
        raise ContentError(str(error)) from error


def check_training(training: Training, card: bytes, files: Mapping[str, bytes], folder: str) -> None:
    """Check the files of a finished training.

    Args:
        training: the training that they belong to by name.
        card: its ``cell.json``.
        files: content by name within the training's folder, ``result.json`` among them.
        folder: the folder's name, for messages.

    Raises:
        ContentError: a file cannot be parsed, belongs to another training, or holds an impossible value.
    """
    _check_cell(training, f"cells/{training.cell.id}/cell.json", card)
    result = parse_object(f"{folder}/{RESULT}", files[RESULT])
    _check_result(training, f"{folder}/{RESULT}", result)
    if METRICS in files:
        _check_records(training, f"{folder}/{METRICS}", files[METRICS], result)
    if TRIPLETS in files:
        _check_triplets(training, f"{folder}/{TRIPLETS}", files[TRIPLETS])
    for name, content in files.items():
        if name.startswith("attempts/"):
            _check_attempt(f"{folder}/{name}", content, int(name.removeprefix("attempts/").removesuffix(".json")))
    check_stated(result["files"], files, folder)


def check_stated(stated: Mapping[str, Mapping[str, Any]], files: Mapping[str, bytes], folder: str) -> None:
    """Check that the records beside a result are those that it states. Weights are never beside it.

    Results of versions before 0.2 state only their weights.

    Args:
        stated: what the result states of its files.
        files: content by name, the records among them.
        folder: the folder's name, for messages.

    Raises:
        ContentError: a record is missing, is another one, or is not stated.
    """
    for name in (METRICS, TRIPLETS):
        if name in stated:
            _require(name in files, f"{folder}/{name}", f"is missing, but {RESULT} states it")
            own = (len(files[name]), hashlib.sha256(files[name]).hexdigest())
            is_same = own == (stated[name]["bytes"], stated[name]["sha256"])
            _require(is_same, f"{folder}/{name}", f"is not the file that {RESULT} states")
        elif name in files:
            _require("name" not in stated[BEST], f"{folder}/{name}", f"is not a file that {RESULT} states")


def _require(is_right: bool, name: str, problem: str) -> None:
    if not is_right:
        raise ContentError(f"{name} {problem}")


def _check_cell(training: Training, name: str, content: bytes) -> None:
    described, cell = parse_object(name, content), training.cell
    own = {"id": cell.id, "seed": cell.seed, "data_fingerprint": cell.data_fingerprint, "weights_id": cell.weights_id}
    for key, value in own.items():
        _require(described.get(key) == value, name, f"has another {key} than the sweep's cell")
    objective = described.get("objective")
    _require(
        isinstance(objective, dict)
        and (objective.get("pair"), objective.get("triplet")) == (cell.objective.pair, cell.objective.triplet),
        name,
        "has another objective than the sweep's cell",
    )


def _check_result(training: Training, name: str, result: Mapping[str, Any]) -> None:
    own = {"cell": training.cell.id, "stage": training.stage.name, "stage_key": training.key}
    for key, value in own.items():
        _require(result.get(key, value) == value, name, f"has the {key} of another training")
    metrics = result.get("metrics")
    _check_metrics(name, metrics, lambda key: False)
    assert isinstance(metrics, dict)
    split = "test" if training.cell.tested else "val"
    lacking = [f"{split}/{key}" for key in _RECALLS if f"{split}/{key}" not in metrics]
    _require(not lacking, name, f"lacks the metrics {', '.join(lacking)}")
    for problem in result_problems(result):
        raise ContentError(f"{name} {problem}")
    epochs, ended = training.epochs, result.get("epochs", result["best_epoch"])
    _require(ended <= epochs, name, f"must have epochs from 1 to {epochs}")


def _check_metrics(name: str, metrics: Any, may_be_infinite: Callable[[str], bool]) -> None:
    """Check metrics: finite numbers, recalls from 0 to 100 that grow with k, and rsum as their sum."""
    _require(isinstance(metrics, dict) and len(metrics) <= _MAX_METRICS, name, "has no mapping of metrics")
    for key, value in metrics.items():
        _require(_METRIC.fullmatch(key) is not None, name, f"has a metric that cannot be called {key[:80]!r}")
        if may_be_infinite(key) and value in _NOT_FINITE:
            continue
        _require(is_number(value), name, f"must have a finite number as {key}")
        top = 100 if re.search(r"_r[0-9]+$", key) else 600 if key.endswith("rsum") else math.inf
        if top < math.inf:
            _require(0 <= value <= top + _ROUNDING, name, f"must have {key} from 0 to {top}, got {value:g}")
    for prefix in {key.rpartition("/")[0] for key in metrics}:
        of_split = {key: metrics.get(f"{prefix}/{key}") for key in _RECALLS}
        if None not in of_split.values():
            _check_recalls(f"{name}: {prefix}", of_split)


def _check_recalls(name: str, recalls: Mapping[str, Any]) -> None:
    for direction in ("i2t", "t2i"):
        r1, r5, r10 = (recalls[f"{direction}_r{k}"] for k in (1, 5, 10))
        grows = r1 <= r5 + _ROUNDING and r5 <= r10 + _ROUNDING
        _require(grows, name, f"must have {direction}_r1 <= {direction}_r5 <= {direction}_r10")
    total = sum(value for key, value in recalls.items() if key != "rsum")
    _require(abs(total - recalls["rsum"]) <= 0.01, name, f"must have rsum {total:g}, got {recalls['rsum']:g}")


def _check_records(training: Training, name: str, content: bytes, result: Mapping[str, Any]) -> None:
    lines = content.splitlines()
    _require(len(lines) <= training.epochs, name, f"has more than {training.epochs} epochs")
    for number, line in enumerate(lines, start=1):
        place = f"{name}:{number}"
        record = parse_object(place, line)
        _require(is_count(record.get("epoch"), number) and record["epoch"] == number, place, f"is not epoch {number}")
        _require(is_time(record.get("time", 0)), place, "must have a time in seconds since 1970")
        _check_metrics(place, record.get("metrics"), lambda key: not key.startswith(("val/", "test/")))
        ours, theirs = record["metrics"].get("val/rsum"), result["metrics"].get("val/rsum")
        if number == result["best_epoch"] and None not in (ours, theirs):
            _require(abs(ours - theirs) <= _ROUNDING, place, f"has another val/rsum than {RESULT}")


def _check_triplets(training: Training, name: str, content: bytes) -> None:
    """Check a triplet record without unpacking more than its limit, and without trusting the sizes it declares."""
    arrays: dict[str, Any] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as zipped:
            members = zipped.infolist()
            if sum(member.file_size for member in members) > _MAX_TRIPLETS:
                raise ContentError(f"{name} is larger than {_MAX_TRIPLETS // 1024**2} MiB unpacked")
            for member in members:
                if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise ContentError(f"{name} is compressed in a way that no training uses")
                with zipped.open(member) as file:
                    data = file.read(member.file_size)
                arrays[member.filename] = _parse_array(data)
        wanted = {f"{key}.npy" for key in ("low", "high", "num_bins", "epochs", "entries", "weight")}
        entries, epochs, weight = arrays["entries.npy"], arrays["epochs.npy"], arrays["weight.npy"]
        is_right = (
            arrays.keys() == wanted
            and all(array.dtype.kind in "iuf" for array in arrays.values())
            and all(arrays[f"{key}.npy"].shape == () for key in ("low", "high", "num_bins"))
            and arrays["num_bins.npy"] == NUM_BINS
            and -np.inf < arrays["low.npy"] < arrays["high.npy"] < np.inf
            and weight.shape == (NUM_BINS, NUM_BINS)
            and entries.ndim == 2
            and entries.shape[1] == 3
            and entries.dtype.kind == epochs.dtype.kind == "i"
            and epochs.ndim == 1
            and bool(((epochs >= 1) & (epochs <= training.epochs)).all())
            and bool((entries >= 0).all() and (entries[:, 1] < NUM_BINS * NUM_BINS).all())
            and bool(np.isin(entries[:, 0], epochs).all())
        )
    except ContentError:
        raise
    except Exception as error:  # zipfile and numpy fail in many ways
        raise ContentError(f"{name} is not a triplet record") from error
    _require(is_right, name, "is not a triplet record")


def _parse_array(data: bytes) -> Any:
    """Parse an array whose header declares exactly the bytes that follow; one of objects is refused."""
    file = io.BytesIO(data)
    read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[npy.read_magic(file)]
    shape, _, dtype = read_header(file)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(data) - file.tell():
        raise ValueError("the header does not fit the data")
    return npy.read_array(io.BytesIO(data), allow_pickle=False)


def _check_attempt(name: str, content: bytes, number: int) -> None:
    try:
        attempt = Attempt.from_json(parse_object(name, content))
    except DamagedError as error:
        raise ContentError(f"{name}: {error}") from error
    _require(attempt.n == number, name, f"is not attempt {number}")
    is_sha256 = re.fullmatch(r"([0-9a-f]{64})?", attempt.git_diff_sha256) is not None
    is_commit = re.fullmatch(r"[0-9a-f]{0,64}", attempt.git_commit) is not None
    _require(is_sha256 and is_commit, name, "must have a commit and the digest of a diff in hex")
