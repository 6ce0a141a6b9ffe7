"""The processes beside the first one of a unit: how it starts and watches them, and what they do."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import distributed

from goal_sweep.goal_core.training.plan import TrainingFailed, UnitPlan
from goal_sweep.goal_core.training.ranks import ALIKE, BrokenError, Ranks

Body = Callable[[UnitPlan, Ranks], None]
_PATIENCE = timedelta(days=1)
"""Longer than the first process may evaluate while the others wait. A watchdog notices hangs."""
_MEETING = timedelta(minutes=10)
"""Longer than the processes may take to start and to open the data."""
_JOIN_S = 10.0
_NOTICE_S = 5.0
"""Seconds within which a death is noticed that has broken a connection."""


class FirstRank(Ranks):
    """The first process of a unit. It starts the others on creation, and watches them until it is closed.

    Args:
        unit: what to train; `processes` says how many there are.
        lost: is told when another process is lost, with reason and kind. It is called in a thread of its own, because
            the main thread may wait for the lost process forever; it may end this process.
        body: what the others do, a function of a module.

    Raises:
        BrokenError: another process could not start.
    """

    def __init__(self, unit: UnitPlan, lost: Callable[[str, str], None], body: Body) -> None:
        super().__init__(0, unit.processes)
        self._lost, self._reason, self._over = lost, "", threading.Event()
        self._kind, self._broken, self._told = "died", threading.Event(), threading.Event()
        self._scratch = tempfile.TemporaryDirectory(prefix="goal-sweep-ranks-")
        context = multiprocessing.get_context("spawn")  # a fork would copy a CUDA context, which then fails
        self._workers: list[BaseProcess] = []
        for rank in range(1, self.processes):
            arguments = (body, unit, rank, Path(self._scratch.name), os.getpid())
            # Not daemons: those may not start the processes that decode images. They end with this one by themselves.
            self._workers.append(context.Process(target=follow, args=arguments, name=f"rank {rank}"))
            self._workers[-1].start()
        threading.Thread(target=self._watch, name="goal-sweep ranks", daemon=True).start()
        try:
            with self.together():
                join(unit, 0, Path(self._scratch.name))
        except BaseException:
            self.close()
            raise

    @contextmanager
    def together(self) -> Iterator[None]:
        """As for every rank; an error that only this process meets is told to ``lost``, too."""
        try:
            yield
        except ALIKE:
            raise
        except Exception as error:
            if not self._broken.wait(_NOTICE_S if isinstance(error, RuntimeError) else 0):
                own = TrainingFailed.because_of("", error)
                self._break(f"the first of {self.processes} processes failed: {own.reason}", own.kind)
            self._told.wait()  # which may end this process
            raise BrokenError(self._reason, self._kind) from error

    def _watch(self) -> None:
        """Notice the end of another process."""
        sentinels: dict[Any, BaseProcess] = {worker.sentinel: worker for worker in self._workers}
        while sentinels and not self._over.is_set():
            for ended in wait(list(sentinels), timeout=1.0):
                worker = sentinels.pop(ended)
                worker.join(_NOTICE_S)  # its sentinel is ready a moment before it is gone
                if self._over.is_set() or worker.exitcode == 0:
                    continue
                kind, how = "died", f"ended with exit status {worker.exitcode}"
                with suppress(OSError):
                    kind, _, reason = Path(self._scratch.name, worker.name).read_text().partition("\n")
                    how = f"failed: {reason}"
                self._break(f"{worker.name} of {self.processes} {how}", kind)
                return

    def _break(self, reason: str, kind: str) -> None:
        if not self._broken.is_set():
            self._reason, self._kind = reason, kind
            self._broken.set()
            self._lost(reason, kind)
            self._told.set()

    def finish(self) -> None:
        """Tell the other processes that there is nothing more to do, and wait for their end."""
        with suppress(Exception):  # all is done, so a process that is lost now is no loss
            self.send(None)
        deadline = time.monotonic() + _JOIN_S
        for worker in self._workers:
            worker.join(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Kill the other processes that are left: they may wait for this one."""
        self._over.set()
        for worker in self._workers:
            if worker.is_alive():
                worker.kill()
            worker.join()
        with suppress(Exception):
            distributed.destroy_process_group()
        self._scratch.cleanup()


def join(unit: UnitPlan, rank: int, scratch: Path) -> None:
    """Become one of a unit's processes, number ``rank``, which find each other by a file in a folder."""
    if Path("/sys/class/net/lo").exists():
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ.setdefault(name, "lo")  # they are on one machine, and nobody else should reach them
    cuda = unit.device == "cuda"
    if cuda:
        torch.cuda.set_device(rank)
    store = distributed.FileStore(str(scratch / "meeting"), unit.processes)  # type: ignore[attr-defined]  # it is public
    store.set_timeout(_MEETING)
    backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
    distributed.init_process_group(backend, store=store, rank=rank, world_size=unit.processes, timeout=_PATIENCE)


def follow(body: Body, unit: UnitPlan, rank: int, scratch: Path, parent: int) -> None:
    """The life of a process that is not the first: do what the first says until it says that all is done.

    Args:
        body: does it.
        unit: the unit.
        rank: number of this process.
        scratch: the folder in which the processes meet, and leave the kind and the reason of an error.
        parent: id of the first process, without which this one ends.
    """
    # Batch systems signal every process of a job; the first one decides what to do.
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(name, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=[parent], daemon=True).start()
    try:
        join(unit, rank, scratch)
        body(unit, Ranks(rank, unit.processes))
    except BaseException as error:
        failed = TrainingFailed.because_of("", error if isinstance(error, Exception) else RuntimeError(repr(error)))
        with suppress(OSError):
            (scratch / f"rank {rank}").write_text(f"{failed.kind}\n{failed.reason}")
        os._exit(1)  # at once: others wait for it
    os._exit(0)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


class NoFiles:
    """Stands for the files of a process that has none: it gets its state from the first one, which writes and logs."""

    def path(self, name: str) -> Path:
        """How messages name a state that came from the first process."""
        return Path("first-process", name)

    def log(self, line: str) -> None:
        """Do nothing."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"only the first process of a unit has files ({name})")
