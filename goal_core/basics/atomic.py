"""Files that appear whole or not at all, on local disks and NFS, and folders for temporary files.

Every write goes to a temporary name in the same folder, is flushed to the disk, and takes its final name in one step;
then the folder is flushed too. A process that dies at any instruction leaves the old file or the new one, and at most a
temporary file, which `remove_leftovers` removes. A read or write that fails with an error that may pass (a full or
read-only disk, a network folder that comes back) is repeated for a few seconds.
"""

import errno
import itertools
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import TypeVar

from goal_sweep.goal_core.basics.errors import DataError, GoalError
from goal_sweep.goal_core.basics.machine import has_ended, process_tag

_serial = itertools.count()
_TEMPORARY = re.compile(r"\..+\.([0-9a-f]{12}-\d+)-\d+\.tmp")
"""The name of a temporary file; group 1 is the tag of the process that writes it."""
_FOREIGN_LEFTOVER = 3600.0
T = TypeVar("T")
RETRY_DELAYS: tuple[float, ...] = (0.1, 0.4, 1.0, 2.0)
"""Seconds before each further try at a read or write that failed."""
_LASTING = frozenset(
    {
        *(errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY, errno.ELOOP, errno.ENAMETOOLONG),
        *(errno.EACCES, errno.EPERM, errno.EINVAL, errno.EBADF, errno.ENOSYS, errno.ENOTSUP, errno.EMLINK, errno.EXDEV),
    }
)
"""Errors that waiting does not mend."""
_ADVICE = {
    errno.ENOSPC: "free space there",
    errno.EDQUOT: "free space there, or raise the quota",
    errno.EROFS: "make it writable, or choose another folder",
    errno.EACCES: "change its permissions, or choose another folder",
    errno.ESTALE: "remount the network folder",
}


class StorageError(GoalError, OSError):
    """The storage failed; the training itself is not at fault."""


class DamagedError(GoalError):
    """A file is damaged."""


def before_operation(operation: str, path: Path) -> None:
    """Called right before each read, write, rename, link and removal of a file. Fault tests fail or die there."""


def retried(act: Callable[[], T]) -> T:
    """Call a function that may be repeated, again after `RETRY_DELAYS` if it fails with an error that may pass."""
    for delay in RETRY_DELAYS:
        try:
            return act()
        except OSError as error:
            if error.errno in _LASTING:
                raise
        time.sleep(delay)
    return act()


@contextmanager
def storage_errors(path: Path, doing: str) -> Iterator[None]:
    """Turn errors of the operating system, also as native libraries report them, into a `StorageError` of one line."""
    try:
        yield
    except GoalError:
        raise
    except Exception as error:
        if isinstance(error, OSError):
            # safetensors says that a file is missing without a number.
            code = error.errno or (errno.ENOENT if isinstance(error, FileNotFoundError) else 0)
            reason = error.strerror or str(error)
        elif native := re.search(r"\(os error (\d+)\)", str(error)):  # of Rust, in which safetensors writes
            code, reason = int(native[1]), os.strerror(int(native[1]))
        else:
            raise
        advice = f": {_ADVICE[code]}, then start again" if code in _ADVICE else ""
        failed = StorageError(f"cannot {doing} {path}: {reason}{advice}")
        failed.errno = code
        raise failed from error


def perform(operation: str, path: Path, act: Callable[[], T], *, doing: str = "read") -> T:
    """Do one operation on a file or folder, again if it fails with an error that may pass; then a `StorageError`."""

    def once() -> T:
        with storage_errors(path, doing):
            before_operation(operation, path)
            return act()

    return retried(once)


def replace_with(path: Path, write: Callable[[Path], object], *, guard: Callable[[], object] | None = None) -> None:
    """Write a file of any size and put it in place of ``path`` in one step; a `StorageError` leaves that unchanged.

    ``write`` gets another path in the same folder. ``guard`` is called when the content is on the disk, right before it
    takes the final name; it may raise to give up.
    """

    def once() -> None:
        with _staged(path, write, guard) as temporary:
            before_operation("rename", path)
            os.replace(temporary, path)

    retried(once)


@contextmanager
def usual_mode(path: Path) -> Iterator[None]:
    """Give a file that is written within the block the mode of other files; safetensors lets only its owner read it."""
    path.touch()
    mode = path.stat().st_mode
    yield
    path.chmod(mode)


def replace_bytes(path: Path, content: bytes) -> None:
    """`replace_with` for content in memory."""
    replace_with(path, lambda temporary: temporary.write_bytes(content))


def create_bytes(path: Path, content: bytes, *, guard: Callable[[], object] | None = None) -> bool:
    """As `replace_with` for content in memory, but never replaces a file; of several processes exactly one succeeds.

    False leaves the existing file untouched.
    """
    tries = itertools.count()

    def once() -> bool:
        with _staged(path, lambda temporary: temporary.write_bytes(content), guard) as temporary:
            if next(tries) and path.exists() and path.read_bytes() == content:
                return True  # the try before created it, and failed afterwards
            before_operation("link", path)
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
        return True

    return retried(once)


def _create_without_links(temporary: Path, path: Path) -> bool:
    """Exclusive creation where the file system has no hard links; the content follows a moment later."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    os.replace(temporary, path)
    return True


@contextmanager
def _staged(path: Path, write: Callable[[Path], object], guard: Callable[[], object] | None) -> Iterator[Path]:
    """The content under a temporary name, on the disk, to be given the final one; the folder is flushed afterwards."""
    temporary = path.parent / f".{path.name}.{process_tag()}-{next(_serial)}.tmp"
    with storage_errors(path, "write"):
        try:
            before_operation("write", path)
            write(temporary)
            before_operation("sync", path)
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            if guard is not None:
                guard()
            yield temporary
        except Exception as error:
            is_gone = isinstance(error, FileNotFoundError) and path.parent.is_dir() and not temporary.exists()
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            if is_gone:  # which another try mends
                raise OSError(errno.EAGAIN, f"{temporary.name} was removed by another process") from error
            raise
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        _sync_folder(path.parent)


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


def make_folder(folder: Path) -> None:
    """Create a folder and those above it, unless they exist."""
    perform("mkdir", folder, lambda: folder.mkdir(parents=True, exist_ok=True), doing="create")


def check_space(folder: Path, needed: int, pattern: str, advice: str = "free space") -> None:
    """Check that a folder has room for files of so many bytes, less those of a pattern; else a `DataError`."""
    with storage_errors(folder, "read"):
        missing = needed - sum(path.stat().st_blocks * 512 for path in folder.glob(pattern))
        free = shutil.disk_usage(folder).free
    if missing > free:
        raise DataError(f"{folder} has {free / 1e9:.1f} GB free and needs {missing / 1e9:.1f} GB more; {advice}")


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files that dead processes left in a folder.

    Those of other machines and containers, whose processes cannot be seen from here, stay for an hour.
    """
    for path in folder.glob(".*.tmp"):
        with suppress(OSError):
            if is_leftover(path):
                path.unlink()


def is_leftover(path: Path) -> bool:
    """Whether a file is a temporary one that a dead process left."""
    match = _TEMPORARY.fullmatch(path.name)
    if match is None and not (path.name.startswith(".") and path.name.endswith(".tmp")):
        return False
    ended = has_ended(match[1]) if match else None
    return abs(time.time() - path.stat().st_mtime) > _FOREIGN_LEFTOVER if ended is None else ended


def open_file(path: str | Path) -> BufferedReader:
    """Open a file to read it; a folder, a pipe or a device in its place is a `DamagedError`."""
    return open(path, "rb", opener=_opener)


def _opener(path: str, flags: int) -> int:
    """Opens a file, and no pipe, whose reader would wait for its other end for ever."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DamagedError("it is not a file")
    return descriptor


def read_bytes(path: Path) -> bytes | None:
    """The content of a file, or None where there is no such file."""

    def read() -> bytes | None:
        try:
            with open_file(path) as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except DamagedError as error:
            raise DamagedError(f"{path} is damaged: {error}") from error

    return perform("read", path, read)


_PREFIX = "goal-sweep-work-"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder that is removed at the end; see :func:`make_scratch_folder`."""
    folder = make_scratch_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_scratch_folder() -> Path:
    """Make a folder for this user alone, which the caller removes.

    Those of processes that have ended without doing so are removed now.

    Raises:
        StorageError: it cannot be made.
    """
    parent = Path(tempfile.gettempdir()).absolute()
    remove_left_behind(parent, _PREFIX)
    try:
        return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{process_tag()}-", dir=parent))
    except OSError as error:
        why = f"{error.strerror}; name another with TMPDIR"
        raise StorageError(f"cannot create a folder in {parent} for temporary files: {why}") from error


def remove_left_behind(parent: Path, prefix: str) -> None:
    """Remove this user's folders of processes that have ended; after the prefix their names have the process's tag."""
    for path in parent.glob(f"{prefix}*"):
        with suppress(OSError):
            tag = re.match(r"[0-9a-f]+-\d+", path.name.removeprefix(prefix))
            if tag and has_ended(tag[0]) and path.lstat().st_uid == os.getuid():
                shutil.rmtree(path, ignore_errors=True)
