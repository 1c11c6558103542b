"""The loop, and what drives it."""

from triton_ops.runner.session import tune as tune
