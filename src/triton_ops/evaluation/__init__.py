"""How one config is checked and timed, in this process or in one of its own."""
