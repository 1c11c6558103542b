"""Buckets: which problems share one winner. One mapping serves the tuner, the launcher and the lockfile."""

from triton_ops.buckets.extents import extents_of as extents_of
from triton_ops.buckets.validity import Range as Range
from triton_ops.buckets.validity import log_distance as log_distance
from triton_ops.buckets.validity import why_outside as why_outside
