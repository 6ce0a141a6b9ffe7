"""The layouts that datasets come in. Importers read them to a `Layout`, and `opening` makes an index of it."""
