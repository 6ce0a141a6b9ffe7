"""What every benchmark shares: its options, its rows of figures, and how the machine tells time and memory."""

import argparse
import json
import os
import platform
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

Row = Mapping[str, float]
"""Figures by the name of their column."""
Measure = Callable[[argparse.Namespace, "Report"], None]
ROOT = Path(__file__).parents[1]
MIB = 2**20


class Report:
    """Rows of figures, printed and (at ``path``) saved as they come, for a benchmark that is stopped."""

    def __init__(self, path: str = "") -> None:
        self.tables: dict[str, dict[str, Row]] = {}
        self.failed: dict[str, str] = {}
        self._path, self._header = path, ("", [""])

    def row(self, table: str, name: str, measure: Callable[[], Row]) -> Row:
        """Measure a row, print and save it; where measuring raises, the row is empty and recorded as failed."""
        try:
            figures = measure()
        except Exception as error:
            traceback.print_exc()
            self.failed[f"{table}, {name}"] = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
            self.save()
            return {}
        self.tables.setdefault(table, {})[name] = figures
        if (table, [*figures]) != self._header:
            self._header = table, [*figures]
            print(f"\n{table}\n\n| | {' | '.join(figures)} |\n| --- |{' ---: |' * len(figures)}")
        print(f"| {name} | {' | '.join(map(_text, figures.values()))} |", flush=True)
        self.save()
        return figures

    def save(self) -> None:
        """Write the file, where there is one."""
        if self._path:
            new = Path(f"{self._path}.new")
            new.write_text(json.dumps({"tables": self.tables, "failed": self.failed}, indent=1))
            new.replace(self._path)


def _text(value: float) -> str:
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 100 else f"{value:.3g}"


def parse(doc: str | None, defaults: Mapping[str, Any], arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read a command line whose options are ``defaults``, of the types of their values."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"device": "cpu", "json": "", **defaults}.items():
        flag, many = f"--{name.replace('_', '-')}", isinstance(default, tuple)
        kind, count = type(default[0] if many else default), "+" if many else None
        parser.add_argument(flag, type=kind, nargs=count, default=default, help=f"default: {default}")
    return parser.parse_args(arguments)


def run(doc: str | None, defaults: Mapping[str, Any], measure: Measure, arguments: Sequence[str] | None = None) -> int:
    """A benchmark's program: measure, and return 1 if a row failed."""
    given = parse(doc, defaults, arguments)
    print(f"machine: {', '.join(f'{key} {value}' for key, value in machine(given.device).items())}", flush=True)
    report = Report(given.json)
    measure(given, report)
    return int(bool(report.failed))


def machine(device: str) -> dict[str, str | int]:
    """The processor, its load, the versions, and the card where the device is one."""
    about: dict[str, str | int] = {"processor": platform.processor() or platform.machine()}
    with suppress(OSError, IndexError):
        about["processor"] = Path("/proc/cpuinfo").read_text().split("model name")[1].splitlines()[0].strip("\t :")
    about |= {"cores": os.cpu_count() or 1, "load": f"{os.getloadavg()[0]:.1f}", "Python": platform.python_version()}
    for package in ("torch", "timm", "transformers", "numpy", "pillow"):
        with suppress(PackageNotFoundError):
            about[package] = version(package)
    if device != "cpu":
        card = torch.cuda.get_device_properties(0)
        about |= {"card": card.name, "capability": f"{card.major}.{card.minor}", "cards": torch.cuda.device_count()}
        about |= {"memory_mb": card.total_memory // MIB, "CUDA": str(torch.version.cuda)}
    return about


def wait_for(device: torch.device | str) -> None:
    """Return when the device has nothing left to do."""
    if torch.device(device).type != "cpu":
        torch.accelerator.synchronize(device)


def clock_of(device: str, threads: int) -> Callable[[], float]:
    """The clock of a device: the processor's seconds for one CPU thread, so that other work counts little."""
    return time.process_time if (device, threads) == ("cpu", 1) else time.perf_counter


def seconds(call: Callable[[], object], device: str = "cpu", threads: int = 1) -> float:
    """Seconds of a call, with nothing left to do on the device before and after."""
    clock = clock_of(device, threads)
    wait_for(device)
    began = clock()
    call()
    wait_for(device)
    return clock() - began


def peak_memory(device: str, *, anew: bool = False) -> int:
    """The most bytes held so far (with ``anew``: from now on): allocated on the GPU, or resident, which needs Linux."""
    if device != "cpu":
        if anew:
            torch.cuda.reset_peak_memory_stats()
        return torch.cuda.max_memory_allocated()
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
