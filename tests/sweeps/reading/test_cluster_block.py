from __future__ import annotations

from pathlib import Path

import pytest

from goal_core.basics.errors import ConfigError
from sweeps import SweepError, load_for_cluster, load_sweep
from sweeps.clusters import KubernetesConfig, RayConfig


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


def test_the_sweep_wins_over_the_site_and_set_over_both(tmp_path: Path) -> None:
    site = written(
        tmp_path / "site.yaml",
        'slurm:\n  partition: gpu\n  nodes: 4\n  time: "10:00:00"\n  environment: {A: "1", B: "1"}\n',
    )
    sweep = extended(tmp_path, "cluster:\n  slurm:\n    nodes: 2\n")
    overrides = ['cluster.slurm.time="1:00:00"', 'cluster.slurm.environment.B="2"']
    found = load_for_cluster(sweep, overrides, site=site, environ={})
    slurm = found.cluster.slurm
    assert (slurm.partition, slurm.nodes, slurm.time) == ("gpu", 2, "1:00:00")
    assert slurm.environment == {"A": "1", "B": "2"}
    assert "cluster" not in found.plain
    assert found.config == load_sweep("quickstart")


def test_every_mistake_is_named_with_its_file_line_and_key(tmp_path: Path) -> None:
    site = written(tmp_path / "site.yaml", "slurm:\n  partion: gpu\n  nodes: two\nslrum: {}\n")
    sweep = extended(tmp_path, "cluster:\n  slurm:\n    array: 2\n    array: 3\n    save_before: 1\n")
    assert problems(sweep, site) == [
        "s.yaml:5: cluster.slurm.array: duplicate key, first given at " + str(sweep) + ":4",
        "s.yaml:6: cluster.slurm.save_before: save_before must be at least 30 seconds, got 1",
        "site.yaml:2: slurm.partion: unknown key (did you mean 'partition'?); valid here: "
        + problems(sweep, site)[2].partition("valid here: ")[2],
        "site.yaml:3: slurm.nodes: must be a whole number, got the text 'two'",
        "site.yaml:4: slrum: unknown key (did you mean 'slurm'?); valid here: slurm, ray, kubernetes",
    ]


def test_a_sweep_with_a_wrong_block_is_refused_by_every_command(tmp_path: Path) -> None:
    sweep = extended(tmp_path, "cluster: {slurm: {nodes: -1}}\n")
    with pytest.raises(SweepError, match=r"s.yaml:2: cluster.slurm.nodes: nodes must be at least 1, got -1"):
        load_sweep(sweep)
    with pytest.raises(SweepError, match="must be a mapping of slurm, ray and kubernetes"):
        load_sweep(extended(tmp_path, "cluster: [1]\n"))


def test_mistakes_of_a_set_are_named(tmp_path: Path) -> None:
    sweep = extended(tmp_path, "")
    assert problems(sweep, None, "cluster.slurm.node=2")[0].startswith(
        "--set cluster.slurm.node:0: cluster.slurm.node: unknown key (did you mean 'nodes'?)"
    )


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
        "site.yaml:2: slurm.account: the environment variable PROJECT is not set; set it, or give the value with "
        "--set cluster.slurm.account=..."
    ]


def test_a_sweep_sees_the_variables_of_its_cluster(tmp_path: Path) -> None:
    sweep = extended(tmp_path, "data: {root: '${GOAL_DATA}'}\n")
    site = written(tmp_path / "site.yaml", "slurm: {environment: {GOAL_DATA: /scratch/x}}\n")
    found = load_for_cluster(sweep, site=site, kind="slurm", environ={"GOAL_DATA": "/here"})
    assert found.config.data.root == "/scratch/x"
    assert found.plain["data"]["root"] == "${GOAL_DATA}"
    assert load_for_cluster(sweep, site=site, kind="ray", environ={"GOAL_DATA": "/here"}).config.data.root == "/here"


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("slurm", "setup", "['curl evil']"),
        ("slurm", "python", "/evil"),
        ("slurm", "container", "{image: evil}"),
        ("slurm", "options", "['--comment=x']"),
        ("slurm", "environment", "{A: b}"),
        ("slurm", "pass_environment", "[A]"),
        ("slurm", "modules", "[a]"),
        ("ray", "address", "http://evil:8265"),
        ("ray", "files", "[/etc/shadow]"),
        ("ray", "pip", "[evil]"),
        ("ray", "token_file", "/t"),
        ("kubernetes", "image", "evil"),
        ("kubernetes", "volumes", "[{path: /a, claim: theirs}]"),
        ("kubernetes", "pod", "{spec: {hostNetwork: true}}"),
        ("kubernetes", "secrets", "{A: b/c}"),
    ],
)
def test_what_decides_what_runs_or_is_sent_stands_in_the_site_file(
    tmp_path: Path, kind: str, key: str, value: str
) -> None:
    sweep = extended(tmp_path, f"cluster:\n  {kind}:\n    {key}: {value}\n")
    said = problems(sweep, None)
    assert len(said) == 1
    assert f"s.yaml:4: cluster.{kind}.{key}: decides what runs or what is sent" in said[0]
    site = tmp_path / "site.yaml"
    site.write_text(f"{kind}: {{{key}: {value}}}\n")
    load_for_cluster(extended(tmp_path, ""), site=site, environ={})
    load_for_cluster(extended(tmp_path, ""), [f"cluster.{kind}.{key}={value}"], site=None, environ={})


def test_a_sweep_file_reads_no_variable_into_the_settings_of_a_job(tmp_path: Path) -> None:
    sweep = extended(tmp_path, "cluster:\n  slurm:\n    account: ${AWS_SECRET_ACCESS_KEY}\n")
    assert "environment variables may not stand in this block" in problems(sweep, None)[0]


def test_no_setting_of_a_job_carries_a_password() -> None:
    for make in (
        lambda: RayConfig(tracking="http://u:pw@mlflow"),
        lambda: RayConfig(pip=("https://u:pw@host/x.whl",)),
        lambda: KubernetesConfig(tracking="http://u:pw@mlflow"),
    ):
        with pytest.raises(ConfigError, match="must not") as refused:
            make()
        assert "pw" not in str(refused.value)
