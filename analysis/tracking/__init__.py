"""Results in: MLflow to frames and plain values."""
