"""The objects of a bucket: read, written, listed, copied and removed, with a digest of each in its metadata."""

from __future__ import annotations

import builtins
import errno
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from goal_core.basics.atomic import DamagedError, StorageError
from runners.store.storage.interface import Task, Written
from runners.store.storage.parts import PART, copy_in_parts, send_in_parts
from runners.store.storage.requests import FIRST_S, RefusedError, Requests, failure

SHA256 = "sha256"
"""The entry of an object's metadata with the digest of its content."""
_MAX_COPY = 5 * 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """An object in a listing."""

    key: str
    written: Written


class Bucket:
    """A bucket. Any number of threads may use it.

    Args:
        name: the bucket.
        endpoint: the server's address; empty for AWS_ENDPOINT_URL, or AWS itself.
        first: seconds to wait for the server's first answer.
    """

    def __init__(self, name: str, endpoint: str = "", *, first: float = FIRST_S) -> None:
        self.name, self._first = name, first
        self._requests = Requests(name, endpoint, first=first)

    def url(self, key: str) -> str:
        """The URL of an object."""
        return f"s3://{self.name}/{key}"

    def get(self, key: str) -> bytes | None:
        """Read an object, and compare it with its digest; None if there is none.

        Raises:
            DamagedError: it is not what was written.
            StorageError: it cannot be read.
        """
        for _ in range(2):  # damage on the way does not come twice
            found = self._found("get_object", key)
            if found is None:
                return None
            content: bytes = found["Body"]
            if _stated(found) in ("", hashlib.sha256(content).hexdigest()):
                return content
        raise DamagedError(f"{self.url(key)} is damaged: its content does not match its checksum")

    def put(
        self, key: str, content: bytes, *, new: bool = False, guard: Task | None = None, patience: float | None = None
    ) -> None:
        """Write an object.

        Args:
            key: the object.
            content: the whole object.
            new: refuse to replace an object.
            guard: called right before each try; may raise to give up.
            patience: seconds to repeat it; None for the usual.

        Raises:
            RefusedError: ``new``, and there is one. It may be that of an earlier try, whose answer was lost.
            StorageError: it cannot be written.
        """
        metadata = {SHA256: hashlib.sha256(content).hexdigest()}
        condition = {"IfNoneMatch": "*"} if new else {}

        def write() -> None:
            if guard is not None:
                guard()
            self._requests.once("put_object", Key=key, Body=content, Metadata=metadata, **condition)

        self._requests.repeated("write", key, write, patience)

    def written(self, key: str) -> Written | None:
        """The size and time of an object, as listings state them; None if there is none."""
        return next((one.written for one in self.list(key) if one.key == key), None)

    def list(self, prefix: str) -> Iterator[Listed]:
        """The objects whose keys begin with a text, in order."""
        for page in self._pages(Prefix=prefix):
            for item in page.get("Contents", ()):
                written = Written(bytes=int(item["Size"]), modified_ns=_nanoseconds(item["LastModified"]))
                yield Listed(key=item["Key"], written=written)

    def names(self, folder: str) -> builtins.list[str]:
        """The names directly in a folder, whose key ends with ``/``; those of folders end with ``/`` too."""
        names: dict[str, None] = {}
        for page in self._pages(Prefix=folder, Delimiter="/"):
            names |= {one["Key"].removeprefix(folder): None for one in page.get("Contents", ())}
            names |= {one["Prefix"].removeprefix(folder): None for one in page.get("CommonPrefixes", ())}
        return [name for name in names if name]

    def _pages(self, **asked: Any) -> Iterator[dict[str, Any]]:
        page = self._requests.ask("list", "list_objects_v2", **asked)
        yield page
        while page.get("IsTruncated"):
            token = page["NextContinuationToken"]
            page = self._requests.ask("list", "list_objects_v2", ContinuationToken=token, **asked)
            yield page

    def delete(self, key: str) -> None:
        """Remove an object, if there is one."""
        self._requests.ask("remove", "delete_object", Key=key)

    def copy(self, key: str, target: str) -> None:
        """Copy an object within the bucket, with its metadata.

        Raises:
            StorageError: it cannot be copied, or there is none.
        """
        source = {"Bucket": self.name, "Key": key}
        head = self._head(key)
        try:
            if int(head["ContentLength"]) <= _MAX_COPY:
                self._requests.ask("write", "copy_object", Key=target, CopySource=source)
                return
            copy_in_parts(self._requests, source, target, int(head["ContentLength"]), head.get("Metadata", {}))
        except FileNotFoundError as error:
            raise failure(errno.ENOENT, f"cannot read {self.url(key)}: it is gone") from error

    def appeared(self, key: str) -> bool:
        """Whether there is an object. Asks once; no if the server does not answer."""
        try:
            self._requests.once("head_object", Key=key)
        except Exception:
            return False
        return True

    def send(self, key: str, path: Path, *, guard: Task) -> None:
        """Write an object with the content of a file, in parts if it is large. Parts that fail are sent again.

        Raises:
            StorageError: it cannot be written.
        """
        if path.stat().st_size <= PART:
            self.put(key, path.read_bytes(), guard=guard)
            return
        with path.open("rb") as file:
            metadata = {SHA256: hashlib.file_digest(file, "sha256").hexdigest()}
        send_in_parts(self._requests, key, path, metadata, guard)

    def fetch(self, key: str, path: Path) -> bool:
        """Read an object into a file, in parts if it is large. Parts that fail are fetched again.

        Returns:
            Whether there is such an object. A content that does not match its digest is fetched once more, and then
            left for the reader, who knows what to do about damage.
        """
        head = self._found("head_object", key)
        if head is None:
            return False
        for _ in range(2):
            digest = hashlib.sha256()
            with path.open("wb") as file:
                for part in self._content(key, head):
                    digest.update(part)
                    file.write(part)
            if _stated(head) in ("", digest.hexdigest()):
                break
        return True

    def digest(self, key: str) -> str:
        """The SHA-256 of an object, in hex.

        Raises:
            StorageError: it cannot be read, or there is none.
        """
        digest = hashlib.sha256()
        for part in self._content(key, self._head(key)):
            digest.update(part)
        return digest.hexdigest()

    def check_conditions(self, key: str) -> None:
        """Check that the server refuses to replace an object where it is asked to.

        Args:
            key: an object that nobody else uses.

        Raises:
            StorageError: it does not, so that two drivers could own the same training.
        """
        self.put(key, b"", patience=self._first)
        try:
            self.put(key, b"", new=True)
        except RefusedError:
            return
        finally:
            self.delete(key)
        raise StorageError(
            f"the server of s3://{self.name} ignores conditional writes (If-None-Match), so nothing keeps two launches "
            "from training the same cell; use a server that honours them (AWS S3, MinIO, Ceph, ...), or a folder"
        )

    def _content(self, key: str, head: dict[str, Any]) -> Iterator[bytes]:
        """The content of an object in parts; the object must stay the same meanwhile."""
        size = int(head["ContentLength"])
        for start in range(0, size, PART):
            asked = {"Range": f"bytes={start}-{min(start + PART, size) - 1}", "IfMatch": head["ETag"]}
            try:
                yield self._requests.ask("read", "get_object", Key=key, **asked)["Body"]
            except (RefusedError, FileNotFoundError) as error:
                raise failure(errno.EAGAIN, f"cannot read {self.url(key)}: it was replaced meanwhile") from error

    def _head(self, key: str) -> dict[str, Any]:
        head = self._found("head_object", key)
        if head is None:
            raise failure(errno.ENOENT, f"cannot read {self.url(key)}: there is no such object")
        return head

    def _found(self, method: str, key: str) -> dict[str, Any] | None:
        """The answer about an object; None if there is none."""
        try:
            answer: dict[str, Any] = self._requests.ask("read", method, Key=key)
        except FileNotFoundError:
            return None
        return answer


def _stated(answer: dict[str, Any]) -> str:
    """The digest in an object's metadata; empty where something else wrote the object."""
    return str(answer.get("Metadata", {}).get(SHA256, ""))


def _nanoseconds(time: datetime) -> int:
    since = time - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000
