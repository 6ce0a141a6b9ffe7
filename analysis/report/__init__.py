"""The report: sections, tables, pages."""
