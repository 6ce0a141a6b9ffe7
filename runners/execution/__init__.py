"""Where trainings run: Ray Tune and its workers. Alone imports ray."""
