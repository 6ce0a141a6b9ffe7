import json
from collections.abc import Callable
from pathlib import Path

import pytest

from goal_sweep.goal_core.data.config import KarpathyConfig
from goal_sweep.sweeps import load_sweep
from goal_sweep.sweeps.reading.load import load_for_cluster
from tests.helpers.mistakes import check_mistakes

Write = Callable[..., Path]
Errors = Callable[..., list[str]]


def test_relative_paths_start_at_the_folder_of_the_file_that_says_them(write: Write, tmp_path: Path) -> None:
    write("base/b.yaml", "data: {format: karpathy, name: coco, root: ../coco, annotations: x.json}\n")
    path = write(
        "folder/a.yaml",
        """\
        name: a
        extends: ../base/b.yaml
        model: {backbones: [{name: a, weights: w.safetensors}, {name: b, weights: random}, c]}
        seeds: [1]
        stages: [{name: frozen, epochs: 1, lr: 1}]
        store: out
        """,
    )
    config = load_sweep(path)
    assert isinstance(config.data, KarpathyConfig)
    assert config.data.root == str(tmp_path / "coco")
    assert config.data.annotations == "x.json"
    own = tmp_path / "folder"
    assert [item.weights for item in config.model.backbones] == [str(own / "w.safetensors"), "random", "timm"]
    assert config.store == str(own / "out")
    assert config.tracking.uri == "sqlite:///{store}/mlflow.db"
    there = load_sweep(path, ["store=out", "data.root=coco", "tracking=./runs"])
    assert (there.store, there.data.root) == (str(tmp_path / "out"), str(tmp_path / "coco"))
    assert there.tracking.uri == str(tmp_path / "runs")
    plain = load_for_cluster(path).plain  # a batch job's file lies elsewhere
    assert plain["data"]["root"] == str(tmp_path / "coco")


@pytest.mark.parametrize("text", ["a\tb", "a\nb", "a\x1b[31m", "a\u2028b"])
def test_a_control_character_is_refused_at_its_line(write: Write, errors_of: Errors, text: str) -> None:
    path = write("a.yaml", TEXT.replace("${ROOT}/coco", json.dumps(text)))
    check_mistakes(errors_of(path, environ={}), f"a.yaml:5 | data.root | U+{ord(text[1]):04X}")


@pytest.mark.parametrize("given", ["~/clip", "clip", "openai/clip"])
def test_towers_lie_in_a_folder_or_on_the_hub(write: Write, tmp_path: Path, monkeypatch, given: str):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "clip").mkdir()
    model = f"model={{framework: dual, backbones: [{{name: clip, weights: {given}}}], embed_dim: 8}}"
    (backbone,) = load_sweep(write(), [model]).model.backbones
    assert backbone.weights == (given if given == "openai/clip" else str(tmp_path / "clip"))


@pytest.mark.parametrize(
    ("given", "absolute"),
    [
        ("sqlite:///runs.db", "sqlite:///{cwd}/runs.db"),
        ("sqlite:////abs/runs.db", "sqlite:////abs/runs.db"),
        ("'sqlite:///{store}/runs.db'", "sqlite:///{store}/runs.db"),
        ("./mlruns", "{cwd}/mlruns"),
        ("http://host:5000/x", "http://host:5000/x"),
        ("databricks", "databricks"),
    ],
)
def test_tracking(write: Write, tmp_path: Path, given: str, absolute: str) -> None:
    assert load_sweep(write(), [f"tracking={given}"]).tracking.uri == absolute.replace("{cwd}", str(tmp_path))


TEXT = """\
name: env
data:
  format: karpathy
  name: coco
  root: ${ROOT}/coco
  annotations: ${ANNOTATIONS:-auto}
model:
  backbones: [{name: resnet18, weights: "${WEIGHTS:-random}"}]
seeds: [1]
stages: [{name: frozen, epochs: 1, lr: 1e-3}]
store: ${STORE:-here}
tracking: ${TRACKING:-sqlite:///runs.db}
"""


def test_set_variables_are_expanded(write: Write) -> None:
    environ = {"ROOT": "/data", "ANNOTATIONS": "x.json", "WEIGHTS": "/w.pt", "STORE": "/s", "TRACKING": "/runs"}
    config = load_sweep(write("a.yaml", TEXT), environ=environ)
    assert isinstance(config.data, KarpathyConfig)
    assert (config.data.root, config.data.annotations) == ("/data/coco", "x.json")
    assert config.model.backbones[0].weights == "/w.pt"
    assert (config.store, config.tracking.uri) == ("/s", "/runs")


def test_defaults_of_unset_and_empty_variables(write: Write, tmp_path: Path) -> None:
    config = load_sweep(write("a.yaml", TEXT), environ={"ROOT": "/data", "WEIGHTS": ""})
    assert config.model.backbones[0].weights == "random"
    assert config.store == str(tmp_path / "here")
    assert config.tracking.uri == f"sqlite:///{tmp_path}/runs.db"


@pytest.mark.parametrize("environ", [{}, {"ROOT": ""}])
def test_unset_variable_names_key_variable_and_set(write: Write, errors_of: Errors, environ: dict[str, str]) -> None:
    lines = errors_of(write("a.yaml", TEXT), environ=environ)
    check_mistakes(lines, "a.yaml:5 | data.root | ROOT | --set")


def test_an_overridden_value_needs_no_variable(write: Write) -> None:
    config = load_sweep(write("a.yaml", TEXT), ["data.root=${OTHER}/x"], environ={"OTHER": "/o"})
    assert isinstance(config.data, KarpathyConfig)
    assert config.data.root == "/o/x"


def test_variables_elsewhere_are_refused(write: Write, errors_of: Errors) -> None:
    path = write("a.yaml", TEXT.replace("name: coco", "name: ${SET}"))
    lines = errors_of(path, environ={"ROOT": "/", "SET": "coco"})
    check_mistakes(lines, "a.yaml:4 | data.name | data.root, data.annotations | store | tracking")


@pytest.mark.parametrize("value", ["${}", "${A", "${A B}", "${A-b}"])
def test_malformed_variable(write: Write, errors_of: Errors, value: str) -> None:
    path = write("a.yaml", TEXT.replace("${ROOT}/coco", f"'{value}'"))
    check_mistakes(errors_of(path, environ={"A": "/"}), "a.yaml:5 | data.root | ${NAME}")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tracking.uri", "http://host/${NAME}"),
        ("tracking.uri", "http://${NAME}:5000"),
        ("tracking.uri", "http://host/x?key=${NAME}"),
        ("tracking.uri", "${NAME}"),
        ("tracking.uri", "${URI}"),
        ("tracking.uri", "${UNSET:-http://host/}${NAME}"),
        ("tracking.uri", "file://host/${NAME}"),
        ("store", "s3://bucket/${NAME}"),
        ("store", "${URI}"),
        ("data.root", "https://host/${NAME}"),
    ],
)
def test_a_variable_is_no_part_of_an_address(write: Write, errors_of: Errors, key: str, value: str) -> None:
    environ = {"ROOT": "/", "NAME": "hunter2", "URI": "http://hunter2"}
    lines = errors_of(write("a.yaml", TEXT), f"{key}={value}", environ=environ)
    name = "URI" if "URI" in value else "UNSET" if "UNSET" in value else "NAME"
    check_mistakes(lines, f"--set {key} | {key} | {name} | address")
    assert "hunter2" not in lines[0]


@pytest.mark.parametrize("tracking", ["sqlite:///${NAME}/runs.db", "sqlite:////${NAME}.db", "./${NAME}", "~/${NAME}"])
def test_a_variable_may_be_part_of_a_path_of_tracking(write: Write, tracking: str) -> None:
    environ = {"ROOT": "/", "NAME": "mine", "HOME": "/home/somebody"}
    assert "/mine" in load_sweep(write("a.yaml", TEXT), [f"tracking={tracking}"], environ=environ).tracking.uri


@pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "MLFLOW_TRACKING_PASSWORD", "HF_TOKEN", "MY_API_KEY"])
def test_a_variable_that_is_named_like_a_secret_is_no_part_of_a_path(write: Write, errors_of: Errors, name: str):
    lines = errors_of(write("a.yaml", TEXT.replace("ROOT", name)), environ={name: "hunter2"})
    check_mistakes(lines, f"a.yaml:5 | data.root | {name}")
    assert "hunter2" not in lines[0]
