"""The ranking model as JavaScript, translated from its Python source."""
