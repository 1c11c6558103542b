"""How proposed configs get ready to be tried: at once, or compiled ahead in other processes."""
