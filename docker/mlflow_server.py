"""Start the MLflow server of docker-compose.yml: Postgres, an S3-compatible server, users with passwords.

Passwords come from files, and go on in files that only this user can read: none is part of a command line, of the
container's settings or of MLflow's log. Only the key that signs the sessions of browsers is passed on in the
environment, because MLflow reads it nowhere else.
"""

import configparser
import os
import time
from pathlib import Path

import boto3
import botocore.exceptions

SECRETS, PRIVATE = Path("/run/secrets"), Path("/run/goal")
DATABASE = "postgresql+psycopg://mlflow@postgres:5432/mlflow"  # psycopg takes the password from PGPASSFILE
S3, BUCKET = "http://s3:8333", "mlflow"
HOSTS = ("mlflow:5000", "localhost:*", "127.0.0.1:*")
S3_WAIT_S = 60.0


def secret(name: str) -> str:
    """The content of a secret."""
    return (SECRETS / name).read_text(encoding="utf-8").strip()


def write_private(name: str, text: str) -> str:
    """Write a file that only this user can read, and return its path."""
    path = PRIVATE / name
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    return str(path)


def write_users() -> str:
    """Write the settings of MLflow's own log-in; the administrator is created at the first start."""
    settings = configparser.RawConfigParser()
    settings["mlflow"] = {
        "default_permission": "READ",
        "database_uri": DATABASE,
        "admin_username": "admin",
        "admin_password": secret("mlflow_password"),
        "auth_cache_ttl_seconds": "60",  # a password is hashed slowly on purpose, and a report asks hundreds of times
    }
    path = write_private("basic_auth.ini", "")
    with open(path, "w", encoding="utf-8") as file:
        settings.write(file)
    return path


def make_bucket() -> None:
    """Create the bucket for MLflow's files, unless it exists.

    Raises:
        botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError: the server does not take it for a minute.
    """
    client, until = boto3.client("s3", endpoint_url=S3, region_name="us-east-1"), time.monotonic() + S3_WAIT_S
    while True:
        try:
            if BUCKET not in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]:
                client.create_bucket(Bucket=BUCKET)
            return
        except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError):
            if time.monotonic() > until:
                raise
            time.sleep(1.0)


def main() -> None:
    """Prepare everything, then become the server."""
    os.environ["AWS_SHARED_CREDENTIALS_FILE"] = str(SECRETS / "s3_client.ini")
    os.environ["MLFLOW_S3_ENDPOINT_URL"] = S3
    os.environ["PGPASSFILE"] = write_private("pgpass", f"postgres:5432:mlflow:mlflow:{secret('postgres_password')}\n")
    os.environ["MLFLOW_AUTH_CONFIG_PATH"] = write_users()
    os.environ["MLFLOW_FLASK_SERVER_SECRET_KEY"] = secret("mlflow_session_key")
    os.environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"  # MLflow's own batch jobs, which nothing here uses
    make_bucket()
    command = ["mlflow", "server", "--host", "0.0.0.0", "--port", "5000", "--workers", "2", "--app-name", "basic-auth"]
    # A worker of uvicorn that imports MLflow on a busy machine for longer than 5 seconds would be ended, and again.
    command += ["--uvicorn-opts", "--timeout-worker-healthcheck 600"]
    command += ["--allowed-hosts", ",".join(HOSTS), "--backend-store-uri", DATABASE]
    command += ["--artifacts-destination", f"s3://{BUCKET}/artifacts"]
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
