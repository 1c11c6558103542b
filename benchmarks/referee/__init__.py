"""Candidates for a referee: planted cheats, honest candidates, and references against themselves."""
