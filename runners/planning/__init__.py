"""What a sweep costs: how its cells are packed into units, and the time, memory and disk space that these take."""
