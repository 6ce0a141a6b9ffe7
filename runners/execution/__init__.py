"""Where units run: Ray Tune in the driver, and what its workers do. This room alone imports ray.

`runners.launch` and `runners.cli` import it; it knows the store and nothing of tracking. Its names are imported from
its modules, for ray takes seconds to load.
"""
