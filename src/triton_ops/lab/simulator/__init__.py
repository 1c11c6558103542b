"""The config ranking simulator: which config the ranking model expects to win, and why."""
