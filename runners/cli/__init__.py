"""The command line: parse, call, print, exit. Only this room imports all four packages, and no other imports it."""
