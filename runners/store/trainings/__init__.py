"""The folder of a training in the store: its files, the right to write them, how its attempts end, its status."""
