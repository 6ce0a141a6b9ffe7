"""docker-compose.yml: valid, and as closed as docs/security.md says. No container starts here (`make cluster-test`)."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from goal_sweep.runners.cluster.backend import PATIENT
from tests.helpers.paths import ROOT

FILES = ("docker-compose.yml", "docker-compose.gpu.yml", "tests/cluster/compose/docker-compose.test.yml")
SCHEMA = json.loads((Path(__file__).parent / "compose-spec.json").read_text())
SECRETS = {"postgres_password", "mlflow_password", "mlflow_session_key", "ray_token", "s3_server.json", "s3_client.ini"}
COMMAND = "goal-sweep"
"""The service that runs one command and ends, so that it has no health."""


def content(name: str) -> dict[str, Any]:
    """A compose file with its variables at their defaults."""
    text = (ROOT / name).read_text()
    loaded: dict[str, Any] = YAML(typ="safe", pure=True).load(re.sub(r"\$\{[A-Z_]+:-([^}]*)\}", r"\1", text))
    return loaded


SERVICES = content("docker-compose.yml")["services"]


@pytest.mark.parametrize("name", FILES)
def test_it_is_valid(name):
    jsonschema.Draft7Validator(SCHEMA).validate(content(name))


def test_the_schema_notices_a_mistake():
    wrong = content("docker-compose.yml")
    wrong["services"]["mlflow"]["port"] = 5000
    with pytest.raises(jsonschema.ValidationError, match="port"):
        jsonschema.Draft7Validator(SCHEMA).validate(wrong)


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_has_no_rights_that_it_does_not_need(service):
    one = SERVICES[service]
    user, _, group = one["user"].partition(":")
    assert int(user) > 0
    assert int(group) > 0
    assert one["cap_drop"] == ["ALL"]
    assert one["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "pid", "network_mode", "ipc", "devices"} & one.keys()


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_is_published_on_the_loopback_interface_only(service):
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[service].get("ports", []))


@pytest.mark.parametrize("service", [name for name in SERVICES if name != COMMAND])
def test_a_service_says_whether_it_is_healthy(service):
    check = SERVICES[service]["healthcheck"]
    assert check["test"][0] == "CMD"
    assert {"interval", "timeout", "retries", "start_period"} <= check.keys()


@pytest.mark.parametrize("service", SERVICES)
def test_an_image_has_a_version(service):
    _, _, tag = SERVICES[service]["image"].rpartition(":")
    assert re.match(r"\d+\.\d+", tag), tag
    base = SERVICES[service].get("build", {}).get("args", {}).get("BASE_IMAGE", "python:0.0")
    assert re.match(r"\d+\.\d+", base.rpartition(":")[2]), base


@pytest.mark.parametrize("service", SERVICES)
def test_a_secret_comes_from_a_file(service):
    """None is a variable, and none is part of a command: both show in `docker inspect`."""
    one = SERVICES[service]
    named = [name for name in one.get("environment", {}) if re.search("PASSWORD|TOKEN|SECRET|KEY", name)]
    assert all(name.endswith(("_FILE", "_PATH")) for name in named)
    assert all(str(one["environment"][name]).startswith("/run/secrets/") for name in named)
    words = json.dumps([one.get("command"), one.get("entrypoint"), one.get("build"), one["healthcheck"]])
    assert not re.search(r"password|secret=|token=|://[^/ ]+:[^/ ]+@", words, re.IGNORECASE)
    assert "env_file" not in one


def test_every_secret_has_a_file_that_git_and_the_image_leave_out():
    files = {name: Path(one["file"]) for name, one in content("docker-compose.yml")["secrets"].items()}
    assert files == {name: Path("docker/secrets", name) for name in SECRETS}
    assert "/docker/secrets/" in (ROOT / ".gitignore").read_text().splitlines()
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored.index("docker/secrets") > ignored.index("!docker")


def test_storage_is_reached_by_mlflow_alone():
    assert content("docker-compose.yml")["networks"]["storage"]["internal"] is True
    on_it = {name for name, one in SERVICES.items() if "storage" in one["networks"]}
    assert on_it == {"postgres", "s3", "mlflow"}
    assert SERVICES["postgres"]["networks"] == SERVICES["s3"]["networks"] == ["storage"]


def test_ray_asks_for_a_token_everywhere():
    nodes = {name: one for name, one in SERVICES.items() if "RAY_AUTH_MODE" in one.get("environment", {})}
    assert nodes.keys() == {"ray-head", "ray-worker", COMMAND}
    for one in nodes.values():
        assert one["environment"]["RAY_AUTH_MODE"] == "token"
        assert one["environment"]["RAY_AUTH_TOKEN_PATH"] == "/run/secrets/ray_token"
        assert "ray_token" in one["secrets"]


@pytest.mark.parametrize("service", ["ray-head", "ray-worker", COMMAND])
def test_a_node_that_starts_slowly_is_not_taken_for_dead(service):
    assert PATIENT.items() <= SERVICES[service]["environment"].items()
    if service != COMMAND:
        assert SERVICES[service]["command"].split()[-1] == "--block"  # it ends with its Ray, and is started again
