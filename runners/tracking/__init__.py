"""MLflow, written from what the store holds. In runners, this room alone imports mlflow.

`runners.launch` and `runners.cli` import it. Its names are imported from its modules, for mlflow takes seconds to load.
"""

import os

# Read by mlflow when it is imported.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
# The queue repeats calls itself; the client's own four minutes per call would only delay the first warning.
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
