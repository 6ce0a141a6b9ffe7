"""What benchmarks say of the machine that they run on, and how they tell time and memory there."""

from __future__ import annotations

import gc
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

PACKAGES = ("torch", "timm", "transformers", "numpy")
MIB = 2**20


def print_machine(device: str = "cpu") -> None:
    """Print the processor, the load, the device and the versions: one line."""
    found = []
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            found.append(f"{package} {version(package)}")
    gpu = f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}; " if device != "cpu" else ""
    load = f"load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "load unknown"
    print(
        f"machine: {gpu}{os.cpu_count()} cores of {_processor()}, {load}; Python {platform.python_version()}, "
        f"{', '.join(found)}",
        flush=True,
    )


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def wait_for(device: torch.device | str) -> None:
    """Return when the device has nothing left to do."""
    if torch.device(device).type != "cpu":
        torch.accelerator.synchronize(device)


def clock_of(device: str, threads: int) -> Callable[[], float]:
    """The clock of a device: the processor's seconds for one CPU thread, so that other work counts little."""
    return time.process_time if (device, threads) == ("cpu", 1) else time.perf_counter


def in_own_process(benchmark: str, *words: object, environ: Mapping[str, str] | None = None) -> dict[str, float]:
    """Run a benchmark in a process of its own. Returns the numbers of its last line, which is JSON.

    Args:
        benchmark: the module's name in this package.
        words: its arguments.
        environ: the process's environment; that of this one where it is not given.
    """
    command = [sys.executable, "-m", f"benchmarks.{benchmark}", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def held_bytes(device: str) -> int:
    """What this process holds now: resident memory, or memory allocated on the GPU."""
    gc.collect()
    if device != "cpu":
        return torch.cuda.memory_allocated()
    return _status("VmRSS")


def peak_bytes(device: str, *, reset: bool = False) -> int:
    """The most that this process has held, as :func:`held_bytes` counts. On a CPU this needs Linux.

    With ``reset`` the peak starts anew at what is held now, and that is returned.
    """
    if device != "cpu":
        if reset:
            torch.cuda.reset_peak_memory_stats()
        return torch.cuda.max_memory_allocated()
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    return _status("VmHWM")


def _status(name: str) -> int:
    return int(Path("/proc/self/status").read_text().split(f"{name}:")[1].split()[0]) * 1024
