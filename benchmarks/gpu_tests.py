"""Every GPU test of goal_core: `python -m benchmarks.gpu_tests`. Needs pytest, and none of its plugins.

Each test is recorded as it ends, so that one that crashes, or never ends, hides none before it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib.util import find_spec
from typing import Any

from benchmarks.program import ROOT, Report, run

# Other versions of libraries may warn, which says nothing of the GPU; the project's own options need plugins. A file
# that cannot be imported hides no other.
PYTEST = (
    *("-q", "-W", "default", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib"),
    "--continue-on-collection-errors",
)


class _Results:
    """A plugin of pytest that records every test."""

    def __init__(self, report: Report, tests: str) -> None:
        self._report, self._tests, self._ended = report, tests, dict[str, str]()
        self.skipped = list[str]()

    def row(self) -> dict[str, float | str]:
        """How many tests ended how."""
        ended = list(self._ended.values())
        return {how: ended.count(how) for how in ("passed", "failed", "skipped")}

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._note(report.nodeid, "failed", report)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._report.failed[nodeid] = "did not end"
        self._report.save()

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.skipped:
            self.skipped.append(str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr))
        if report.failed or report.skipped or (report.when == "call" and report.nodeid not in self._ended):
            self._note(report.nodeid, report.outcome, report)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        if self._ended.get(nodeid) != "failed":
            self._report.failed.pop(nodeid, None)
        self._report.tables["GPU tests"] = {self._tests: self.row()}
        self._report.save()

    def _note(self, nodeid: str, outcome: str, report: Any) -> None:
        self._ended[nodeid] = outcome
        if outcome == "failed":
            crash = getattr(report.longrepr, "reprcrash", None)
            said = crash.message.splitlines()[:1] if crash else str(report.longrepr).splitlines()[-1:]
            self._report.failed[nodeid] = "".join(said)


def measure(given: argparse.Namespace, report: Report) -> None:
    """Run the tests, and record how many passed and which did not."""
    if find_spec("pytest") is None:
        report.leave_out("the GPU tests", "pytest is not installed")
        return
    import pytest

    results = _Results(report, given.tests)
    with tempfile.TemporaryDirectory() as scratch:
        limit = ["-o", "timeout=120"] if find_spec("pytest_timeout") else []
        marked = ["-m", "gpu", str(ROOT / given.tests), f"--basetemp={scratch}/tests"]
        status = pytest.main([*PYTEST, *limit, *marked], plugins=[results])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):  # such as a conftest that cannot be imported
        report.failed["pytest"] = f"ended with exit status {int(status)}"
    report.add("GPU tests", given.tests, results.row())
    if results.skipped:
        reasons = sorted({reason.removeprefix("Skipped: ") for reason in results.skipped})
        report.leave_out(f"{len(results.skipped)} GPU tests", ", ".join(reasons))


if __name__ == "__main__":
    sys.exit(run(__doc__, {"tests": "tests/goal_core"}, measure))
