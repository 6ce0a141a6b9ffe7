"""Run units: Ray Tune in the driver, and the work of its workers. Only this room imports ray.

`runners.launch` and `runners.cli` import it. It imports the store, not the tracking. Import its names from its modules,
because ray takes seconds to load.
"""
