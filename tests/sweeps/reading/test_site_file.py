from pathlib import Path

import pytest

from goal_sweep.sweeps import SweepError, load_sweep
from goal_sweep.sweeps.reading.load import load_for_cluster


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def extended(folder: Path, block: str) -> Path:
    return written(folder / "s.yaml", f"extends: quickstart\n{block}")


def problems(sweep: Path, site: Path | None = None, *overrides: str) -> list[str]:
    with pytest.raises(SweepError) as refused:
        load_for_cluster(sweep, overrides, site=site, environ={})
    return [
        f"{Path(problem.where.source).name}:{problem.where.line}: {problem.path}: {problem.message}"
        for problem in refused.value.problems
    ]


def test_set_wins_over_the_site(tmp_path: Path) -> None:
    site = written(
        tmp_path / "site.yaml",
        'slurm:\n  partition: gpu\n  nodes: 4\n  time: "10:00:00"\n  environment: {A: "1", B: "1"}\n',
    )
    overrides = ['cluster.slurm.time="1:00:00"', 'cluster.slurm.environment.B="2"']
    found = load_for_cluster("quickstart", overrides, site=site, environ={})
    slurm = found.cluster.slurm
    assert (slurm.partition, slurm.nodes, slurm.time) == ("gpu", 4, "1:00:00")
    assert slurm.environment == {"A": "1", "B": "2"}
    assert "cluster" not in found.plain
    assert found.config == load_sweep("quickstart")


def test_every_mistake_is_named_with_its_file_line_and_key(tmp_path: Path) -> None:
    site = written(tmp_path / "site.yaml", "slurm:\n  partion: gpu\n  nodes: two\nslrum: {}\n")
    sweep = extended(tmp_path, "seeds: [one]\n")
    assert [problem.partition("; valid here: slurm")[0][:90] for problem in problems(sweep, site)] == [
        "s.yaml:2: seeds.0: must be a whole number, got the text 'one'",
        "site.yaml:2: slurm.partion: unknown key (did you mean 'partition'?); valid here: nodes, gp",
        "site.yaml:3: slurm.nodes: must be a whole number, got the text 'two'",
        "site.yaml:4: slrum: unknown key (did you mean 'slurm'?)",
    ]


@pytest.mark.parametrize("block", ["{slurm: {nodes: 2}}", "{slurm: {setup: [curl evil]}}", "[1]"])
def test_a_sweep_file_holds_no_settings_of_clusters(block: str, tmp_path: Path) -> None:
    (said,) = problems(extended(tmp_path, f"cluster: {block}\n"))
    assert said.startswith("s.yaml:2: cluster: settings of clusters stand in the site file or in --set cluster...")
    with pytest.raises(SweepError, match=r"s.yaml:2: cluster: "):
        load_sweep(tmp_path / "s.yaml")


@pytest.mark.parametrize("text", ["", "- a\n", "a: [\n"])
def test_a_site_file_that_cannot_be_read_is_named(text: str, tmp_path: Path) -> None:
    found = problems(extended(tmp_path, ""), written(tmp_path / "site.yaml", text))
    assert len(found) == 1
    assert found[0].startswith("site.yaml:")


def test_variables_of_the_shell_are_expanded_but_not_in_shell_of_the_node(tmp_path: Path) -> None:
    text = "slurm:\n  account: ${PROJECT}\n  setup: ['cd ${TMP}']\n"
    site = written(tmp_path / "site.yaml", text)
    found = load_for_cluster(extended(tmp_path, ""), site=site, environ={"PROJECT": "p1"}).cluster.slurm
    assert (found.account, found.setup) == ("p1", ("cd ${TMP}",))
    assert problems(extended(tmp_path, ""), site) == [
        "site.yaml:2: slurm.account: the environment variable PROJECT is not set; set it, or give the value with --set"
    ]


def test_a_sweep_sees_the_variables_of_its_cluster(tmp_path: Path) -> None:
    sweep = extended(tmp_path, "data: {root: '${GOAL_DATA}'}\n")
    site = written(tmp_path / "site.yaml", "slurm: {environment: {GOAL_DATA: /scratch/x}}\n")
    found = load_for_cluster(sweep, site=site, kind="slurm", environ={"GOAL_DATA": "/here"})
    assert found.config.data.root == "/scratch/x"
    assert found.plain["data"]["root"] == "${GOAL_DATA}"
    assert load_for_cluster(sweep, site=site, kind="ray", environ={"GOAL_DATA": "/here"}).config.data.root == "/here"
