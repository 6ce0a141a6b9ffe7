"""What the store writes down of a training beside its files: attempts, their provenance, results."""
