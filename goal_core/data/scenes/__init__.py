"""Synthetic scenes: what they contain, their captions and their pictures.

For `goal_core.data.formats.scenes` alone, which makes a dataset of them.
"""
