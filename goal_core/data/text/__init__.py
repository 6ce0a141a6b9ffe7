"""Captions to ids."""
