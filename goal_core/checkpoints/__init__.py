"""Checkpoint files, what they say of themselves, and models begun from them."""
