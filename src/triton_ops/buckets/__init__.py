"""Buckets: which problems share one winner. One mapping serves the tuner, the launcher and the lockfile."""

from triton_ops.buckets.extents import extents_of as extents_of
from triton_ops.buckets.extents import rest_of as rest_of
from triton_ops.buckets.extents import with_extents as with_extents
from triton_ops.buckets.mapper import Bucket as Bucket
from triton_ops.buckets.mapper import Mapper as Mapper
from triton_ops.buckets.mapper import unkeyed as unkeyed
from triton_ops.buckets.rules import Nearest as Nearest
from triton_ops.buckets.rules import PowersOfTwo as PowersOfTwo
from triton_ops.buckets.rules import Rule as Rule
from triton_ops.buckets.rules import UpTo as UpTo
from triton_ops.buckets.rules import rule_of as rule_of
from triton_ops.buckets.validity import Range as Range
from triton_ops.buckets.validity import log_distance as log_distance
from triton_ops.buckets.validity import why_outside as why_outside
