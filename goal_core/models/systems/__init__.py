"""The heads of the published systems, and the parts and losses that they are made of."""
