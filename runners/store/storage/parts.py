"""Large objects in parts: only a part that fails is sent again, however long the server was away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from runners.store.storage.interface import Task
from runners.store.storage.requests import AwayError, Requests

PART = 16 * 2**20
"""Bytes of a part, unless there would be too many."""
_MAX_PARTS = 10_000
_COPIED = 2**30
"""Bytes of a part that the server copies by itself."""


def send_in_parts(requests: Requests, key: str, path: Path, metadata: Mapping[str, str], guard: Task) -> None:
    """Write an object with the content of a file.

    Args:
        requests: to the bucket.
        key: the object.
        path: the file.
        metadata: of the object.
        guard: called before the object appears; may raise to give up.

    Raises:
        StorageError: it cannot be written.
    """
    upload = _begin(requests, key, metadata)
    size = max(PART, -(-path.stat().st_size // _MAX_PARTS))
    try:
        parts: list[dict[str, Any]] = []
        with path.open("rb") as file:
            while part := file.read(size):
                number = len(parts) + 1
                answer = requests.ask("write", "upload_part", Body=part, PartNumber=number, **upload)
                parts.append(_part(number, answer))
        _complete(requests, upload, parts, metadata, guard)
    except BaseException:
        _abort(requests, upload)
        raise


def copy_in_parts(
    requests: Requests, source: Mapping[str, str], target: str, size: int, metadata: Mapping[str, str]
) -> None:
    """Copy an object that is too large for one request.

    Args:
        requests: to the bucket.
        source: bucket and key of the object.
        target: key of the copy.
        size: bytes of the object.
        metadata: of the copy.

    Raises:
        FileNotFoundError: there is no such object.
        StorageError: it cannot be copied.
    """
    upload = _begin(requests, target, metadata)
    step = max(_COPIED, -(-size // _MAX_PARTS))
    try:
        parts: list[dict[str, Any]] = []
        for start in range(0, size, step):
            number, asked = len(parts) + 1, f"bytes={start}-{min(start + step, size) - 1}"
            answer = requests.ask(
                "write", "upload_part_copy", CopySource=source, CopySourceRange=asked, PartNumber=number, **upload
            )
            parts.append(_part(number, answer["CopyPartResult"]))
        _complete(requests, upload, parts, metadata, lambda: None)
    except BaseException:
        _abort(requests, upload)
        raise


def _begin(requests: Requests, key: str, metadata: Mapping[str, str]) -> dict[str, str]:
    begun = requests.ask("write", "create_multipart_upload", Key=key, Metadata=dict(metadata))
    return {"Key": key, "UploadId": begun["UploadId"]}


def _part(number: int, answer: Mapping[str, Any]) -> dict[str, Any]:
    """A part as the end of the upload states it, with the checksums that the server computed."""
    checks = {name: value for name, value in answer.items() if name.startswith("Checksum") and name != "ChecksumType"}
    return {"PartNumber": number, "ETag": answer["ETag"], **checks}


def _complete(
    requests: Requests,
    upload: Mapping[str, str],
    parts: Sequence[Mapping[str, Any]],
    metadata: Mapping[str, str],
    guard: Task,
) -> None:
    def complete() -> None:
        guard()
        try:
            requests.once("complete_multipart_upload", MultipartUpload={"Parts": parts}, **upload)
        except FileNotFoundError:
            # The server does not know the upload any more: a try whose answer was lost has completed it, or a rule of
            # the bucket has removed it. In the second case the object is missing, or is an earlier one.
            with suppress(FileNotFoundError):
                if requests.once("head_object", Key=upload["Key"]).get("Metadata") == dict(metadata):
                    return
            raise AwayError("the server has lost the parts") from None

    requests.repeated("write", upload["Key"], complete)


def _abort(requests: Requests, upload: Mapping[str, str]) -> None:
    try:
        requests.once("abort_multipart_upload", **upload)
    except Exception:
        return  # the bucket's own rules remove what is left of it
