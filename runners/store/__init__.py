"""The results folder, which is the truth about what has been trained."""
