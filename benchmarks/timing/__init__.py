"""How sure a time and a choice between configs are."""
