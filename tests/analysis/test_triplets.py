"""What a training recorded while it trained: read as it was written, and refused where it is damaged."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from goal_sweep.analysis.figures.training import draw_triplets
from goal_sweep.analysis.triplets import parse_record, pooled, read_records
from tests.helpers.results_cases import BINS, record_bytes


def test_a_record_gives_back_its_counts_and_its_path() -> None:
    first = parse_record(record_bytes([[1, 0, 3], [1, 15, 1], [3, 6, 2]], epochs=[1, 2, 3]))
    assert first.total()[0, 0] == 3
    assert first.total(after=1).tolist() == [[0, 0, 0, 0], [0, 0, 2, 0], [0] * 4, [0] * 4]
    pos, neg = first.path()
    assert pos[0] == neg[0] == pytest.approx((3 * -0.75 + 0.75) / 4)
    assert np.isnan(pos[1])  # an epoch without a triplet
    assert (pos[2], neg[2]) == (-0.25, 0.25)
    both = pooled([first, parse_record(record_bytes([[3, 6, 5], [4, 0, 1]]))])
    assert both.epochs == (1, 2, 3, 4)
    assert both.total()[1, 2] == 7
    figure = draw_triplets("block", {("con", "con"): both, ("sig", "cir"): first}, {("con", "con"): "n=2"}, warmup=1)
    assert {axes.get_title() for axes in figure.axes} >= {"con/con  n=2", "sig/cir  "}


@pytest.mark.parametrize(
    "content",
    [b"", b"not a zip", record_bytes([[1, BINS * BINS, 1]]), record_bytes([[9, 0, 1]], epochs=[1]), "pickle"],
)
def test_what_is_no_record_is_refused_and_nothing_is_executed(content: bytes | str) -> None:
    if content == "pickle":
        file = io.BytesIO()
        np.savez(file, num_bins=np.array([object()], dtype=object))
        content = file.getvalue()
    assert isinstance(content, bytes)
    with pytest.raises(ValueError, match=r"record|pickle"):
        parse_record(content)


def test_records_are_read_by_training_and_a_damaged_one_says_why(tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(record_bytes([[1, 5, 2]]))
    (tmp_path / "bad").write_bytes(b"damaged")
    records, why = read_records({"a": "good", "b": "bad", "c": "gone"}, tmp_path.joinpath)
    assert records["a"].total()[1, 1] == 2
    assert set(why) == {"b", "c"}
    assert why["b"].startswith("bad cannot be read: ")
