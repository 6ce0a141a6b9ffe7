from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from goal_sweep.runners.cluster.backend import Submissions


def test_a_submission_is_found_from_another_shell(tmp_path: Path) -> None:
    records = Submissions(tmp_path)
    begun = records.begin("tiny", "slurm", "c0de")
    assert (begun.job, begun.to, begun.code) == ("", "slurm", "c0de")
    sent = records.taken(begun, "12")
    assert sent == replace(begun, job="12")
    assert Submissions(tmp_path).of("tiny") == [sent]
    assert Submissions(tmp_path).of("other") == []
    assert records.files(begun.id).is_dir()


def test_ids_are_unique_also_between_sweeps_stores_and_processes(tmp_path: Path) -> None:
    records = Submissions(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        begun = list(pool.map(lambda number: Submissions(tmp_path).begin("tiny", "ray", ""), range(8)))
    assert len({one.id for one in begun}) == 8
    assert records.next_id("tiny") not in {one.id for one in records.of("tiny")}
    assert records.next_id("tiny") != Submissions(tmp_path / "other").next_id("tiny")


@pytest.mark.parametrize("name", ["a" * 200, "f30k_vsepp.v2", "___"])
def test_ids_are_names_that_kubernetes_accepts(name: str, tmp_path: Path) -> None:
    made = Submissions(tmp_path).next_id(name)
    assert len(made) <= 47
    assert made.replace("-", "").isalnum()
    assert made == made.lower()
    assert made[0].isalnum()
