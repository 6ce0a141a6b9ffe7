"""One launch of one sweep, in the driver's process."""
