"""The command line: parse, call, print, exit. Only this room imports all four packages, and no other imports it.

`__main__` is where a process begins, and `app` joins the groups of commands.
"""
