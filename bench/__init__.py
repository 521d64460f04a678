"""How fast branchmem answers, against what a good engineer would write instead.

Every figure is taken through the public face, beside its peers, in one run,
and after the answers were found equal.  Figures of two runs do not compare:
only ratios inside one run do.
"""
