"""What a run log says, as a report: for terminals, for pull requests, for scripts, and as a page for browsers."""
