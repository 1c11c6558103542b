"""The ranking model as JavaScript, translated from its Python source, so that a page and Python have one model."""
