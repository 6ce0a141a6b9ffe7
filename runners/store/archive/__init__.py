"""Archives: one file that carries results, without weights, from one store to another.

::

    sweep.json                               first: the format and its version, the number of files, the resolved sweep,
                                             its data fingerprint and the ids of its weights
    cells/<cell id>/<stage>-<key>/...        a finished training as the store has it, without its weights

It is a ``.tar.gz``, and unpacked it is a small store. So what reads a store, with the digests that each result states,
checks its content too. An import
never replaces a finished result, and marks what it adds: numbers that were forged together with their digests are not
found.
"""

from goal_sweep.runners.store.archive.adding import ImportOutcome, add_results, plan_import
from goal_sweep.runners.store.archive.export import export_results
from goal_sweep.runners.store.archive.reading import Archive, ArchiveError, opened_archive

__all__ = ["Archive", "ArchiveError", "ImportOutcome", "add_results", "export_results", "opened_archive", "plan_import"]
