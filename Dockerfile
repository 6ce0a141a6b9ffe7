# One image for the driver, the workers and MLflow.
FROM python:3.12-slim
RUN apt-get update && apt-get install -y --no-install-recommends git && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/goal-sweep
COPY . .
RUN pip install --no-cache-dir -c constraints.txt . psycopg2-binary
WORKDIR /work
CMD ["goal-sweep", "--help"]
