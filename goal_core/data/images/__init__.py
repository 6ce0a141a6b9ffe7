"""Image files to squares of pixels."""
