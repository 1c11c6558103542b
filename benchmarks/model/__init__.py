"""How well the model ranks configs before they run."""
