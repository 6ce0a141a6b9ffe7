"""The quickstart, whole: the table that the README prints."""

import re
from pathlib import Path
from statistics import fmean

import pytest

from tests.helpers.paths import ROOT
from tests.helpers.product import results, run

pytestmark = [pytest.mark.exhaustive, pytest.mark.integration, pytest.mark.timeout(1800)]
MOVES = 1.8
"""Points by which a seed may move on another machine."""


def test_the_quickstart_prints_the_table_of_the_readme(tmp_path: Path) -> None:
    done = run(tmp_path, "launch", "quickstart.yaml", status=0)
    shown = (ROOT / "README.md").read_text()
    stated = dict(re.findall(r"^(con|lin|sig|lin-ms|sig-ms)((?: +\*?[\d.]+ ± [\d.]+){3})$", shown, re.MULTILINE))
    assert len(stated) == 5
    printed = dict(
        re.findall(r"^(con|lin|sig|lin-ms|sig-ms)((?: +\*?[\d.]+ ± [\d.]+){3}) *$", done.stdout, re.MULTILINE)
    )
    for pair, row in stated.items():
        means = [float(mean) for mean in re.findall(r"([\d.]+) ±", row)]
        assert [float(mean) for mean in re.findall(r"([\d.]+) ±", printed[pair])] == pytest.approx(means, abs=MOVES)
    found = results(tmp_path)
    assert len(found) == 45
    assert fmean(one["test/t2i_r1"] for one in found.values()) == pytest.approx(42.2, abs=MOVES)
