"""The report: its sections, tables and pages. The highest room: it imports all others.

`writing` makes the files; `sections` computes what they show; `latex` writes tables for papers.
"""
