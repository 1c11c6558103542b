"""`tune`: the look-up of a known winner, or a run of the search, the last comparison and their results."""
