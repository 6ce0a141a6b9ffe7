"""The provenance of a result: versions, code, machine and device of the process that computed it."""

import functools
import hashlib
import json
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

_PACKAGES = ("goal-sweep", "torch", "torchvision", "timm", "numpy", "ray", "mlflow")
SOURCE = ("goal_core", "sweeps", "runners")
"""Packages whose uncommitted changes can change a result; changes to documents and tests cannot."""
_MAX_DIFF = 60_000
BUILT_FROM = "built_from.json"
"""In `runners/store` of a wheel: the state of the checkout that it was built from (`hatch_build.py` writes it)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The provenance that an attempt records."""

    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of Python and of the packages that are installed."""
    git_commit: str = ""
    """Commit of the checkout that goal-sweep runs from or was built from; empty if there is none."""
    git_diff: str = ""
    """Uncommitted changes to its source, cut after 60,000 characters; empty if there are none."""
    git_diff_sha256: str = ""
    """SHA-256 of the whole diff, even if the text was cut; empty if there is none."""
    device: str = ""


def gather() -> Provenance:
    """The provenance of this process. The first call takes about 20 ms, later ones no time."""
    commit, diff = _checkout()
    text = diff if len(diff) <= _MAX_DIFF else diff[:_MAX_DIFF] + f"\n[cut; {len(diff)} characters in all]\n"
    return Provenance(
        versions=versions_of(_PACKAGES),
        git_commit=commit,
        git_diff=text,
        git_diff_sha256=hashlib.sha256(diff.encode()).hexdigest() if diff else "",
        device=device_name(),
    )


@functools.cache
def versions_of(packages: Sequence[str]) -> Mapping[str, str]:
    """The versions of Python and of those of some packages (a tuple) that are installed."""
    found = {"python": platform.python_version()}
    for package in packages:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


@functools.cache
def _checkout() -> tuple[str, str]:
    this = Path(__file__).resolve()
    commit, diff = checkout_state(this, [str(this.parents[2] / package) for package in SOURCE])
    return (commit, diff) if commit else built_from(this.parent / BUILT_FROM)


def built_from(record: Path) -> tuple[str, str]:
    """The commit and the uncommitted changes that a wheel was built from; both empty if there is no record."""
    try:
        content = json.loads(record.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return "", ""
    return str(content["git_commit"]), str(content["git_diff"])


def checkout_state(file: Path, within: Sequence[str] = ()) -> tuple[str, str]:
    """The hash of the commit, and the uncommitted changes, of the git checkout that tracks a file; else both empty.

    Args:
        file: absolute. To lie inside a checkout is not enough, because a virtual environment often does.
        within: folders whose changes count; all folders if none is given.
    """
    if _git(file.parent, "ls-files", "--error-unmatch", file.name) is None:
        return "", ""
    commit = _git(file.parent, "rev-parse", "HEAD")
    if commit is None:
        return "", ""
    return commit.strip(), _git(file.parent, "diff", "HEAD", "--no-ext-diff", "--no-color", "--", *within) or ""


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        command = ["git", "-C", str(folder), *arguments]
        done = subprocess.run(command, capture_output=True, timeout=10, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


@functools.cache
def device_name() -> str:
    """The name of the GPU that this process may use, or else of the CPU.

    The GPU is looked up only if torch is already loaded: the driver needs no GPU, and must not occupy one by asking.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.lower().startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
