"""`python -m runners.cli`, which batch jobs use: it needs no script on the path."""

from runners.cli.app import main

main()
