# One image for the driver, Ray's nodes and the MLflow server. docs/compose.md explains the arguments.
ARG BASE_IMAGE=python:3.12.13-slim-trixie

# The wheel: it carries the commit and the uncommitted changes of the checkout.
FROM ${BASE_IMAGE} AS wheel
RUN command -v git >/dev/null || (apt-get update && apt-get install -y --no-install-recommends git)
RUN python3 -m venv /build && /build/bin/pip install --no-cache-dir "hatchling>=1.25" "hatch-vcs>=0.5"
COPY . /source
# The commit, for a source folder without .git.
ARG GOAL_GIT_COMMIT=
RUN cd /source && GOAL_GIT_COMMIT="${GOAL_GIT_COMMIT}" /build/bin/hatchling build -t wheel -d /dist \
 && /build/bin/python docker/requirements.py pyproject.toml server >/dist/requirements.txt \
 && cp constraints.txt /dist/

FROM ${BASE_IMAGE}
# Wheels of torch for a machine without GPU: https://download.pytorch.org/whl/cpu. They save about 5 GB.
ARG TORCH_INDEX=
ARG UID=1000
RUN groupadd --gid "${UID}" goal && useradd --uid "${UID}" --gid goal --create-home goal \
 && install -d -o goal -g goal /goal /goal/store /run/goal \
 && python3 -m venv /opt/goal-sweep
ENV PATH=/opt/goal-sweep/bin:$PATH PYTHONUNBUFFERED=1 RAY_USAGE_STATS_ENABLED=0 MLFLOW_DISABLE_TELEMETRY=true
# What goal-sweep needs changes less often than goal-sweep, so it is a layer of its own.
COPY --from=wheel /dist/requirements.txt /dist/constraints.txt /tmp/
RUN if [ -n "${TORCH_INDEX}" ]; then \
      pip install --no-cache-dir -c /tmp/constraints.txt --index-url "${TORCH_INDEX}" torch torchvision; fi \
 && pip install --no-cache-dir -c /tmp/constraints.txt -r /tmp/requirements.txt
COPY --from=wheel /dist/*.whl /tmp/
RUN pip install --no-cache-dir --no-deps /tmp/*.whl
COPY docker /opt/goal-sweep/docker
USER goal
WORKDIR /goal
CMD ["goal-sweep", "--help"]
