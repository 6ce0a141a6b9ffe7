"""Evaluation: exact recall of embeddings, of a model on a split, and of checkpoints; and features of whole datasets."""
