"""The files that go into the image, or make what its containers need."""

import json
import os
import runpy
import shutil
import stat
import subprocess
import sys

import pytest

from tests.helpers.paths import ROOT


@pytest.fixture
def secrets(tmp_path):
    shutil.copy(ROOT / "docker" / "make-secrets", tmp_path)
    subprocess.run([tmp_path / "make-secrets"], check=True, capture_output=True)
    return tmp_path / "secrets"


def test_secrets_are_random_and_closed_to_others(secrets):
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o700
    words = [path.read_text() for path in sorted(secrets.iterdir()) if not path.suffix]
    assert [len(bytes.fromhex(word)) for word in words] == [32] * 4
    assert len(set(words)) == 4


def test_both_sides_of_the_object_storage_have_the_same_key(secrets):
    identity = json.loads((secrets / "s3_server.json").read_text())["identities"][0]
    client = (secrets / "s3_client.ini").read_text()
    assert identity["credentials"][0]["secretKey"] in client
    assert len(identity["credentials"][0]["secretKey"]) == 64


def test_existing_secrets_are_kept_and_a_deleted_one_is_made_anew(secrets):
    before = {path.name: path.read_text() for path in secrets.iterdir()}
    (secrets / "ray_token").unlink()
    (secrets / "s3_client.ini").unlink()
    subprocess.run([secrets.parent / "make-secrets"], check=True, capture_output=True)
    after = {path.name: path.read_text() for path in secrets.iterdir()}
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"ray_token", "s3_client.ini", "s3_server.json"}


def test_the_image_is_built_from_all_that_the_wheel_is():
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    linked = {path.readlink().name for path in (ROOT / "goal_sweep").iterdir() if path.is_symlink()}
    assert {"goal_sweep", *linked} <= sent


def test_the_image_installs_what_the_project_needs():
    script = ROOT / "docker" / "requirements.py"
    printed = subprocess.run(
        [sys.executable, script, ROOT / "pyproject.toml", "server"], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    names = {line.partition(">")[0] for line in printed}
    assert {"torch", "ray[tune]", "ray[default]", "mlflow[auth]", "psycopg[binary]", "boto3"} <= names
    pinned = {line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert {name.partition("[")[0].lower() for name in names} - pinned == set()


def test_a_worker_of_mlflow_that_imports_slowly_is_not_ended(secrets, tmp_path, monkeypatch):
    """Uvicorn ends one that does not answer within 5 s, while it imports too."""
    monkeypatch.setattr(os, "environ", os.environ.copy())
    main = runpy.run_path(str(ROOT / "docker" / "mlflow_server.py"))["main"]
    main.__globals__.update(SECRETS=secrets, PRIVATE=tmp_path, make_bucket=lambda: None)
    started = []
    monkeypatch.setattr(os, "execvp", lambda program, words: started.extend(words))
    main()
    options = started[started.index("--uvicorn-opts") + 1].split()
    assert int(options[options.index("--timeout-worker-healthcheck") + 1]) >= 600
    assert main.__globals__["secret"]("mlflow_password") not in " ".join(started)


@pytest.mark.parametrize("script", ["make-secrets", "goal-sweep.sh"])
def test_a_script_can_be_run_and_is_plain_sh(script):
    path = ROOT / "docker" / script
    assert os.access(path, os.X_OK)
    subprocess.run(["sh", "-n", path], check=True)
