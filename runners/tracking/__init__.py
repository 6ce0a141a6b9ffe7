"""MLflow, written from what the store holds. In runners, this room alone imports mlflow.

`runners.launch` and `runners.cli` import it. Its names are imported from its modules, for mlflow takes seconds to load.
"""
