"""Exit with 0 if MLflow answers a question that needs its log-in and its database; its own /health asks neither."""

import base64
import urllib.request
from pathlib import Path

password = Path("/run/secrets/mlflow_password").read_text(encoding="utf-8").strip()
request = urllib.request.Request("http://127.0.0.1:5000/api/2.0/mlflow/experiments/search?max_results=1")
request.add_header("Authorization", "Basic " + base64.b64encode(f"admin:{password}".encode()).decode())
urllib.request.urlopen(request, timeout=10).read()
