"""MLflow, written from what the store holds. Alone in runners imports mlflow."""
