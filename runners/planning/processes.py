"""Work in a process of its own, for what would stay in this one: libraries, their memory, and plugins."""

import os
import signal
import traceback
from collections.abc import Callable
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any, TypeVar

from goal_sweep.goal_core.basics.errors import UnfinishedError

T = TypeVar("T")


def apart(function: Callable[..., T], *arguments: Any) -> T:
    """The result of a function in a process of its own, or its exception.

    The process ends with this one, however this one ends, and leaves Ctrl-C to it. Raises `UnfinishedError` where it
    is killed, as where memory is short.
    """
    # Spawned, as a forked process could not use CUDA. Not of a pool: its semaphores are registered with a process of
    # Python's own, and where that had failed, on a busy machine, so did the launch.
    context = get_context("spawn")
    answers, sender = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(sender, function, arguments))
    process.start()
    sender.close()
    try:
        result, error = answers.recv()
    except EOFError:
        process.join()
        said = "a process beside this one ended without an answer"
        if process.exitcode == -9:
            raise UnfinishedError(f"{said} (killed; is there enough memory?)") from None
        raise RuntimeError(f"{said} (exit status {process.exitcode})") from None
    except BaseException:  # Ctrl-C, above all
        process.kill()
        raise
    finally:
        answers.close()
    process.join()
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]  # what the function returns


def _answer(sender: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()
    try:
        answer: tuple[Any, BaseException | None] = function(*arguments), None
    except (Exception, SystemExit) as error:
        error.add_note(traceback.format_exc())  # which is not sent along
        answer = None, error
    sender.send(answer)


def _end_with_parent() -> None:
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)
