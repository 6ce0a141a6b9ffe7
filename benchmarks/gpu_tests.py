"""Every GPU test of goal_core: `python -m benchmarks.gpu_tests`. Needs pytest, and none of its plugins.

Each test is recorded as it ends, so that one that crashes, or never ends, hides none before it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from importlib.util import find_spec
from typing import Any

from benchmarks.program import ROOT, Report, run

# Other versions of libraries may warn, which says nothing of the GPU; the project's own options need plugins. A file
# that cannot be imported hides no other.
PYTEST = (
    *("-q", "-W", "default", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib"),
    *("--continue-on-collection-errors", "-m", "gpu"),
)


class _Results:
    """A plugin of pytest that records every test."""

    def __init__(self, report: Report, tests: str) -> None:
        self._report, self._tests, self._ended = report, tests, dict[str, str]()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._report.failed[nodeid] = "did not end"
        self._report.save()

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.pytest_runtest_logreport(report)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.passed and report.when != "call":
            return
        self._ended[report.nodeid] = report.outcome
        self._report.failed.pop(report.nodeid, None)
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            said = crash.message if crash else str(report.longrepr).splitlines()[-1]
            self._report.failed[report.nodeid] = said.splitlines()[0]
        if report.skipped:
            self._report.not_measured[report.nodeid] = str(report.longrepr[2])
        self._report.tables["GPU tests"] = {self._tests: Counter(self._ended.values())}
        self._report.save()


def measure(given: argparse.Namespace, report: Report) -> None:
    """Run the tests, and record how many passed and which did not."""
    if find_spec("pytest") is None:
        report.leave_out("the GPU tests", "pytest is not installed")
        return
    import pytest

    with tempfile.TemporaryDirectory() as scratch:
        limit = ["-o", "timeout=120"] if find_spec("pytest_timeout") else []
        chosen = [str(ROOT / given.tests), f"--basetemp={scratch}/tests"]
        status = pytest.main([*PYTEST, *limit, *chosen], plugins=[_Results(report, given.tests)])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):  # such as a conftest that cannot be imported
        report.failed["pytest"] = f"ended with exit status {int(status)}"
        report.save()


if __name__ == "__main__":
    sys.exit(run(__doc__, {"tests": "tests/goal_core"}, measure))
