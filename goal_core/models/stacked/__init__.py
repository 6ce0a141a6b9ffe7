"""The heads of several cells as batched products, for the systems that can."""
