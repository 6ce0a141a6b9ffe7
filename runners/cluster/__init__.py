"""Batch jobs on clusters: what is sent to them, written by pure functions, and what they say of it."""
