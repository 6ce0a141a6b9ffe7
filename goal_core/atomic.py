"""Files that appear whole or not at all, on local disks and NFS.

Every write goes to a temporary name in the same folder, is flushed to the disk, and takes its final name in one step;
then the folder is flushed too. A process that dies at any instruction leaves the old file or the new one, and at most a
temporary file, which `remove_leftovers` removes.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import math
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from goal_core.errors import GoalError

_HOST = re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname())
_serial = itertools.count()
_FOREIGN_LEFTOVER = 3600.0
_ADVICE = {
    errno.ENOSPC: "free space there",
    errno.EDQUOT: "free space there, or raise the quota",
    errno.EROFS: "make it writable, or choose another folder",
    errno.EACCES: "make it writable, or choose another folder",
    errno.ESTALE: "remount the network folder",
}


class StorageError(GoalError, OSError):
    """The storage failed; the training itself is not at fault."""


class DamagedError(GoalError):
    """A file is damaged."""


def _pass(name: str) -> None:
    """Do nothing: a crash point costs one call."""


crash_point: Callable[[str], None] = _pass
"""Called with a name before and after each step of a write. Fault tests replace it to kill the process there."""


@contextlib.contextmanager
def storage_errors(path: Path, doing: str) -> Iterator[None]:
    """Turn errors of the operating system into one readable line.

    Args:
        path: the file concerned.
        doing: a verb for the message, such as ``"write"``.

    Raises:
        StorageError: instead of any `OSError`, or an error of a native library that reports one.
    """
    try:
        yield
    except GoalError:
        raise
    except OSError as error:
        raise _storage_error(error.errno or 0, error.strerror or str(error), path, doing) from error
    except Exception as error:
        # safetensors writes in Rust, which reports a full disk as text: "... (os error 28)".
        native = re.search(r"\(os error (\d+)\)", str(error))
        if native is None:
            raise
        raise _storage_error(int(native[1]), os.strerror(int(native[1])), path, doing) from error


def _storage_error(code: int, reason: str, path: Path, doing: str) -> StorageError:
    advice = f": {_ADVICE[code]}, then start again" if code in _ADVICE else ""
    return StorageError(f"cannot {doing} {path}: {reason}{advice}")


def replace_with(path: Path, write: Callable[[Path], None], *, guard: Callable[[], None] | None = None) -> None:
    """Write a file of any size and put it in place of ``path`` in one step.

    Args:
        path: the final name; its folder exists.
        write: writes the whole content to the path it is given, which is in the same folder.
        guard: called when the content is on the disk, right before it takes the final name; may raise to give up.

    Raises:
        StorageError: the file cannot be written. ``path`` is unchanged.
    """
    with _staged(path, write) as temporary:
        if guard is not None:
            guard()
        crash_point(f"{path.name}: before rename")
        os.replace(temporary, path)
        crash_point(f"{path.name}: after rename")
        _sync_folder(path.parent)


def create_with(path: Path, write: Callable[[Path], None], *, guard: Callable[[], None] | None = None) -> bool:
    """As `replace_with`, but never replaces an existing file; of several processes exactly one succeeds.

    Returns:
        Whether the file was created; False leaves the existing one untouched.

    Raises:
        StorageError: the file cannot be written.
    """
    with _staged(path, write) as temporary:
        if guard is not None:
            guard()
        crash_point(f"{path.name}: before create")
        try:
            os.link(temporary, path)
        except FileExistsError:
            # An NFS client that repeats a lost request reports a failure although it has made the link itself.
            if temporary.stat().st_nlink < 2:
                return False
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
                raise
            if not _create_without_links(temporary, path):
                return False
        crash_point(f"{path.name}: after create")
        temporary.unlink(missing_ok=True)
        _sync_folder(path.parent)
    return True


def replace_bytes(path: Path, content: bytes, *, guard: Callable[[], None] | None = None) -> None:
    """`replace_with` for content in memory."""
    replace_with(path, lambda temporary: _write_bytes(temporary, content), guard=guard)


def create_bytes(path: Path, content: bytes, *, guard: Callable[[], None] | None = None) -> bool:
    """`create_with` for content in memory."""
    return create_with(path, lambda temporary: _write_bytes(temporary, content), guard=guard)


def _write_bytes(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _create_without_links(temporary: Path, path: Path) -> bool:
    """Exclusive creation where the file system has no hard links; the content follows a moment later."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    os.replace(temporary, path)
    return True


@contextlib.contextmanager
def _staged(path: Path, write: Callable[[Path], None]) -> Iterator[Path]:
    """The content under a temporary name, on the disk; the name is removed afterwards, unless the process dies."""
    temporary = path.parent / f".{path.name}.{_HOST}-{os.getpid()}-{next(_serial)}.tmp"
    with storage_errors(path, "write"):
        crash_point(f"{path.name}: before write")
        try:
            write(temporary)
            crash_point(f"{path.name}: before sync")
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            yield temporary
        except Exception:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot flush a folder; they need not, because the server does.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(descriptor)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files that dead processes left in ``folder``.

    Those of a living process of this host stay, because it may be about to rename one. Those of other hosts, whose
    processes cannot be seen from here, stay for an hour.
    """
    for path in folder.glob(".*.tmp"):
        with contextlib.suppress(OSError):
            if _is_abandoned(path):
                path.unlink()


def _is_abandoned(path: Path) -> bool:
    host, _, rest = path.name.removesuffix(".tmp").rpartition(".")[2].rpartition("-")[0].rpartition("-")
    if host != _HOST or not rest.isdigit():
        return abs(time.time() - path.stat().st_mtime) > _FOREIGN_LEFTOVER
    try:
        os.kill(int(rest), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def json_bytes(content: Any, *, indent: int | None = 2) -> bytes:
    """Strict JSON in UTF-8, with a final newline; numbers that JSON lacks become ``"nan"``, ``"inf"``, ``"-inf"``."""
    return (json.dumps(_finite(content), indent=indent, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _finite(content: Any) -> Any:
    if isinstance(content, float) and not math.isfinite(content):
        return str(content)
    if isinstance(content, Mapping):
        return {str(key): _finite(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_finite(value) for value in content]
    return content


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in ``path``, or None where there is no such file.

    Raises:
        DamagedError: the file exists but is not a complete JSON object.
        StorageError: the file cannot be read.
    """
    with storage_errors(path, "read"):
        try:
            content = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
    try:
        parsed = json.loads(content)
    except ValueError as error:
        raise DamagedError(f"{path} is damaged: it is not valid JSON ({error})") from error
    if not isinstance(parsed, dict):
        raise DamagedError(f"{path} is damaged: it does not contain a JSON object")
    return parsed
