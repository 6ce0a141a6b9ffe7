"""The small process above a launch, which starts it again when its Ray has died or has ended it.

Ray's library ends its process with status 1, without a word, within milliseconds of the end of Ray's node process,
which ends itself when one of its agents is killed. No code in that process can be in time. So a launch runs in a child
of this process, which loads no library, and says in a shared page of memory how it means to end.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

STOPPED, INTERRUPTED = 75, 130
"""Exit status of a launch that was stopped before its end, and of one that the user interrupted."""
MAX_RESTARTS = 3
"""How often a launch is started again after its local Ray died."""
AGAIN = "run the same command again to continue"
_CRASHES = {1, *(-number for number in (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS))}
"""How Ray's library ends a process; negative for a signal."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_SAID, _RESTARTS, _RAY_IS_OURS, _FORCE_IS_DONE = range(4)
"""Bytes of the page: how the launch ends, as one more than its status; how often it has started again; two facts."""
_START_AGAIN = 255
_END_S = 10.0
_page: mmap.mmap | None = None
"""What a launch and its supervisor share; None where there is no supervisor."""


def supervise() -> None:
    """Launch in a child: returns there, and only there. This process ends when the launch does.

    Signals with a handler have it in the child, and this process passes them on.
    """
    global _page
    _page = mmap.mmap(-1, mmap.PAGESIZE)
    handlers = {number: own for number in signal.valid_signals() if callable(own := signal.getsignal(number))}
    supervisor = os.getpid()
    _set_in_kernel(_PR_SET_CHILD_SUBREAPER, 1)  # so that what a launch leaves behind is found
    while True:
        _page[_SAID] = _page[_RAY_IS_OURS] = 0
        child = os.fork()
        if child == 0:
            die_with(supervisor)
            if _page[_FORCE_IS_DONE]:
                sys.argv[:] = [word for word in sys.argv if word != "--force"]
            return
        asked, pass_on = _messenger(child)
        for number in handlers:
            signal.signal(number, pass_on)
        status = _wait_for(child)
        for number, own in handlers.items():
            signal.signal(number, own)
        _end_children()
        if not _starts_again(_page, status, asked):
            os._exit(_exit_status(_page, status, asked))


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, as far as the system can."""
    if _set_in_kernel(_PR_SET_PDEATHSIG, signal.SIGKILL) and os.getppid() != parent:
        os._exit(STOPPED)  # it has ended before


def _set_in_kernel(option: int, value: int) -> bool:
    """Set what Linux alone has; whether it was set."""
    return sys.platform == "linux" and not ctypes.CDLL(None).prctl(option, value)


def _messenger(child: int) -> tuple[list[int], Callable[[int, FrameType | None], Any]]:
    """A handler that passes signals on to a child, and the signals that it has passed on."""
    asked: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        with suppress(ProcessLookupError):
            os.kill(child, number)

    return asked, pass_on


def _wait_for(child: int) -> int:
    """Wait for a child, and for what else becomes one. Returns its exit status; negative for a signal."""
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status)


def _end_children() -> None:
    """End what a launch has left behind, such as the workers of a Ray that died."""
    with suppress(ImportError):  # of the extra [sweep], without which no launch begins
        import psutil

        if left := psutil.Process().children(recursive=True):
            for one in left:
                with suppress(psutil.Error):
                    one.kill()
            psutil.wait_procs(left, timeout=_END_S)


def _starts_again(page: mmap.mmap, status: int, asked: list[int]) -> bool:
    """Whether to start the launch again; says so if Ray has ended it, and counts."""
    crashed = not page[_SAID] and status in _CRASHES and page[_RAY_IS_OURS] and not asked
    if crashed and page[_RESTARTS] < MAX_RESTARTS:
        _say("Ray has ended this launch; starting again")
    elif page[_SAID] != _START_AGAIN:
        return False
    page[_RESTARTS] += 1
    return True


def _exit_status(page: mmap.mmap, status: int, asked: list[int]) -> int:
    """The status with which to end; says what the launch could not say."""
    if said := page[_SAID]:
        return said - 1
    if asked:
        _say(f"ended by {signal.Signals(asked[0]).name}: the same command continues")
        return INTERRUPTED if asked[0] == signal.SIGINT else STOPPED
    if status < 0:
        _say(f"error: the launch was ended by {signal.Signals(-status).name}; {AGAIN}")
        return 128 - status
    _say(f"error: {'Ray' if page[_RAY_IS_OURS] else 'a library'} has ended this launch, with status {status}; {AGAIN}")
    return STOPPED


def _say(line: str) -> None:
    with suppress(OSError):  # of a terminal that was closed
        os.write(2, f"{line}\n".encode())


def will_end(status: int) -> None:
    """Tell the supervisor that this launch ends by itself, with a status."""
    if _page is not None:
        _page[_SAID] = status + 1


def ray_is_ours() -> None:
    """Tell the supervisor that this launch has a Ray of its own, so that it may start again with another."""
    if _page is not None:
        _page[_RAY_IS_OURS] = True


def force_is_done() -> None:
    """Have `--force` left out when this launch starts again, because the old results have been set aside."""
    if _page is not None:
        _page[_FORCE_IS_DONE] = True


def start_again(error: Exception) -> NoReturn:
    """End this process, and have the supervisor start the launch again.

    When the node process of a local Ray is killed, the driver cannot use Ray again: native threads would end the
    process at some later moment. The store holds everything that a new launch needs.

    Args:
        error: why; raised without a supervisor, or if it has started the launch again `MAX_RESTARTS` times already.
    """
    if _page is None or _page[_RESTARTS] >= MAX_RESTARTS:
        raise error
    print(f"{str(error).removesuffix(f'; {AGAIN}')}; starting again", flush=True)
    sys.stderr.flush()
    _page[_SAID] = _START_AGAIN
    os._exit(STOPPED)
