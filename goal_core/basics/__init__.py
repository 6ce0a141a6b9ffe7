"""What every room stands on: files that appear whole, errors, devices, random streams, and registries."""
