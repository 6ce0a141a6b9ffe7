#!/bin/sh
# goal-sweep in a container of docker-compose.yml: with MLflow's password, and for `launch` as a node of the Ray cluster
# that trains nothing, because Ray takes drivers only from its nodes.
set -eu
mkdir -p ~/.mlflow
(umask 077 && printf '[mlflow]\nmlflow_tracking_username = admin\nmlflow_tracking_password = %s\n' \
  "$(cat /run/secrets/mlflow_password)" >~/.mlflow/credentials)
if [ "${1:-}" = launch ]; then
  ray start --address="$GOAL_SWEEP_ADDRESS" --num-cpus=0 --num-gpus=0 >/tmp/ray-start.log 2>&1 || {
    cat /tmp/ray-start.log >&2
    echo "error: this container cannot join Ray at $GOAL_SWEEP_ADDRESS; is ray-head healthy? (docker compose ps)" >&2
    exit 75
  }
fi
exec goal-sweep "$@"
