"""Pictures. Compute nothing."""
