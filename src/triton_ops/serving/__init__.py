"""What is done with winners before something serves with them: made from misses, verified, prepared, exchanged."""
