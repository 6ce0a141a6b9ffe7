"""The layouts that datasets come in."""
