"""Twenty steps of tiny VSE++ cells give the recorded metrics: of one in every epoch, of all 15 objectives at the end.

The tolerance lets another CPU's rounding pass. With other vector instructions (AVX2, SSE), other matrix products (MKL's
compatible mode, oneDNN for SSE4.1) and two threads, the training metrics differed from the recorded ones by at most
3e-5 of their value, and no recall differed. Ten times that is allowed, and one query of each kind. On one machine two
runs are equal to the last bit (tests/goal_core/models/test_contract.py).

After a change that is meant: `pytest tests/goal_core/training/test_golden_curve.py --update-golden`, read the
difference, and raise `goal_core.basics.numerics.NUMERICS_VERSION`.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from goal_sweep.goal_core.training.train import train_unit
from tests.helpers.training_cases import FROZEN, folders_of, unit_of

GOLDEN = Path(__file__).parent / "golden"
PAIRS = ("con", "lin", "sig", "lin-ms", "sig-ms")
STAGE = replace(FROZEN, epochs=4, lr_drops=(3,))
"""Four epochs of five steps: one of warm-up, two of the objective, one after the learning rate has dropped."""
RELATIVE = 3e-4
ONE_QUERY = {"i2t": 100 / 8, "t2i": 100 / 40, "rsu": 3 * (100 / 8 + 100 / 40)}
"""By how much a recall, or their sum, moves with one of the 8 images and one of the 40 captions."""


def curve(root: Path) -> str:
    """A line for each epoch and metric, to full precision; the last epoch's are followed by the result's."""
    unit = unit_of("sig-ms/cir", stage=STAGE)
    train_unit(unit, folders := folders_of(unit, root))
    names = [*(str(epoch) for epoch in range(1, STAGE.epochs + 1)), "result"]
    rows = zip(names, folders["sig-ms-cir"].numbers(), strict=True)
    return "".join(f"{name}\t{key}\t{value!r}\n" for name, row in rows for key, value in row.items())


def grid(root: Path) -> str:
    """The same lines of the last epoch and the result, for each objective."""
    names = [f"{pair}/{triplet}" for pair in PAIRS for triplet in ("con", "nca", "cir")]
    unit = unit_of(*names, stage=STAGE)
    train_unit(unit, folders := folders_of(unit, root))
    rows = {name: folders[name.replace("/", "-")].numbers()[-2:] for name in names}
    return "".join(
        f"{name}\t{key}\t{value!r}\n" for name, both in rows.items() for row in both for key, value in row.items()
    )


@pytest.mark.parametrize(
    ("made", "file"),
    [(curve, "vsepp_20_steps.tsv"), pytest.param(grid, "vsepp_grid.tsv", marks=pytest.mark.exhaustive)],
)
def test_the_numbers_are_the_golden_ones(made: Callable[[Path], str], file: str, tmp_path, pytestconfig: pytest.Config):
    text, path = made(tmp_path), GOLDEN / file
    if pytestconfig.getoption("--update-golden"):
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"no golden numbers at {path}; write them with --update-golden"
    ours, golden = ([line.split("\t") for line in lines.splitlines()] for lines in (text, path.read_text()))
    assert [line[:2] for line in ours] == [line[:2] for line in golden]
    for (row, name, value), (_, _, expected) in zip(ours, golden, strict=True):
        split, _, metric = name.partition("/")
        absolute, relative = (1e-6, RELATIVE) if split == "train" else (ONE_QUERY[metric[:3]], 0)
        assert float(value) == pytest.approx(float(expected), abs=absolute, rel=relative), f"{name} of {row}"
