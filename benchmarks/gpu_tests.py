"""Every GPU test of goal_core: `python -m benchmarks.gpu_tests`. Needs pytest, and none of its plugins."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.program import ROOT, Report, run

# Other versions of libraries may warn, which says nothing of the GPU; the project's own options need plugins.
PYTEST = ("-m", "pytest", "-q", "-W", "default", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib")


def measure(given: argparse.Namespace, report: Report) -> None:
    """Run the tests, and record how many passed and which did not."""
    if find_spec("pytest") is None:
        report.leave_out("the GPU tests", "pytest is not installed")
        return
    with tempfile.TemporaryDirectory() as scratch:
        results = Path(scratch, "results.xml")
        limit = ["-o", "timeout=120"] if find_spec("pytest_timeout") else []
        marked = ["-m", "gpu", given.tests, f"--junitxml={results}", f"--basetemp={scratch}/tests"]
        subprocess.run([sys.executable, *PYTEST, *limit, *marked], cwd=ROOT, check=False)
        cases = list(ElementTree.parse(results).getroot().iter("testcase"))
    skipped = [f"{skip.get('message')}" for case in cases for skip in case.iter("skipped")]
    for case in cases:
        for problem in (*case.iter("failure"), *case.iter("error")):
            report.failed[f"{case.get('classname')}.{case.get('name')}"] = problem.get("message", "").partition("\n")[0]
    passed = len(cases) - len(skipped) - len(report.failed)
    report.add("GPU tests", given.tests, {"passed": passed, "failed": len(report.failed), "skipped": len(skipped)})
    if skipped:
        report.leave_out(f"{len(skipped)} GPU tests", ", ".join(sorted(set(skipped))))


if __name__ == "__main__":
    sys.exit(run(__doc__, {"tests": "tests/goal_core"}, measure))
