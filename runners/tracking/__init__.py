"""Write MLflow from what the store holds. In runners, only this room imports mlflow.

`runners.launch` and `runners.cli` import it. Import its names from its modules, because mlflow takes seconds to load.
"""

import os

# Read by mlflow when it is imported.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
# The queue retries calls itself. The client's own retries, four minutes per call, would only delay the first warning.
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
# Files go through the server, which may be the only one that reaches the object storage behind it.
os.environ.setdefault("MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD", "false")
os.environ.setdefault("MLFLOW_ENABLE_PROXY_MULTIPART_DOWNLOAD", "false")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")  # one bar per file, over the report
# It would print two lines for every run that ends.
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
