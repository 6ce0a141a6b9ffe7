"""Seeded drawings with captions."""
