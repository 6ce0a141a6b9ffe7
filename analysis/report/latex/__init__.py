"""Tables for a paper, in LaTeX."""
