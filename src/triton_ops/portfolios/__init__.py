"""Few configs for many problems: which k configs lose least beside the best of each problem, from measured times."""
