"""Numbers about the results. Draws nothing, reads nothing."""
