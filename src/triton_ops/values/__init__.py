"""The values of tuning, all frozen: problems, tensor specs, trials, work, tolerances, buckets and keys."""

from triton_ops._faces import lazy_face

with lazy_face(__name__):
    from triton_ops.values.buckets import ANY as ANY
    from triton_ops.values.buckets import BucketRule as BucketRule
    from triton_ops.values.buckets import Mapper as Mapper
    from triton_ops.values.buckets import Nearest as Nearest
    from triton_ops.values.buckets import Range as Range
    from triton_ops.values.classes import ALIGNMENTS as ALIGNMENTS
    from triton_ops.values.classes import CLASS as CLASS
    from triton_ops.values.classes import EXAMPLES as EXAMPLES
    from triton_ops.values.classes import TYPES as TYPES
    from triton_ops.values.classes import IntegerClass as IntegerClass
    from triton_ops.values.classes import class_cut as class_cut
    from triton_ops.values.classes import class_of as class_of
    from triton_ops.values.classes import typical as typical
    from triton_ops.values.classes import typical_argument as typical_argument
    from triton_ops.values.classes import typical_memory as typical_memory
    from triton_ops.values.conclusion import Conclusion as Conclusion
    from triton_ops.values.contents import Contents as Contents
    from triton_ops.values.key import Argument as Argument
    from triton_ops.values.key import Key as Key
    from triton_ops.values.key import Problem as Problem
    from triton_ops.values.resources import Resources as Resources
    from triton_ops.values.tensors import ALIGNMENT_BYTES as ALIGNMENT_BYTES
    from triton_ops.values.tensors import ITEM_BYTES as ITEM_BYTES
    from triton_ops.values.tensors import KNOWN_MULTIPLE as KNOWN_MULTIPLE
    from triton_ops.values.tensors import STORED_ALONE as STORED_ALONE
    from triton_ops.values.tensors import TensorSpec as TensorSpec
    from triton_ops.values.tensors import as_stored as as_stored
    from triton_ops.values.tensors import contiguous_stride as contiguous_stride
    from triton_ops.values.tensors import dtype_name as dtype_name
    from triton_ops.values.tensors import is_aligned as is_aligned
    from triton_ops.values.tensors import is_fake as is_fake
    from triton_ops.values.tensors import item_bytes as item_bytes
    from triton_ops.values.tolerance import Tolerance as Tolerance
    from triton_ops.values.tolerance import as_callable as as_callable
    from triton_ops.values.trial import Compiled as Compiled
    from triton_ops.values.trial import KernelMetrics as KernelMetrics
    from triton_ops.values.trial import Measurement as Measurement
    from triton_ops.values.trial import Status as Status
    from triton_ops.values.trial import Trial as Trial
    from triton_ops.values.trial import TuningResult as TuningResult
    from triton_ops.values.work import Footprint as Footprint
    from triton_ops.values.work import Schedule as Schedule
    from triton_ops.values.work import Tile as Tile
    from triton_ops.values.work import TilePlan as TilePlan
    from triton_ops.values.work import UnknownTileError as UnknownTileError
    from triton_ops.values.work import Work as Work
    from triton_ops.values.work import is_power_of_two as is_power_of_two
    from triton_ops.values.work import tile_side as tile_side
    from triton_ops.values.work import warps_and_stages as warps_and_stages
