"""Tunables, configs, constraints and config spaces, in pure Python without torch or Triton."""

from triton_ops._faces import lazy_face

with lazy_face(__name__):
    from triton_ops.space.config import Config as Config
    from triton_ops.space.config import Members as Members
    from triton_ops.space.config import Value as Value
    from triton_ops.space.config import as_tuples as as_tuples
    from triton_ops.space.config import checked_value as checked_value
    from triton_ops.space.config import given_back as given_back
    from triton_ops.space.options import CONFIG_FIELDS as CONFIG_FIELDS
    from triton_ops.space.options import LAUNCH_OPTIONS as LAUNCH_OPTIONS
    from triton_ops.space.options import Allowed as Allowed
    from triton_ops.space.options import why_not_of_a_file as why_not_of_a_file
    from triton_ops.space.space import ConfigSpace as ConfigSpace
    from triton_ops.space.space import SpaceSize as SpaceSize
    from triton_ops.space.space import UnlistedSpace as UnlistedSpace
    from triton_ops.space.tunable import Choice as Choice
    from triton_ops.space.tunable import Constraint as Constraint
    from triton_ops.space.tunable import Flag as Flag
    from triton_ops.space.tunable import IntRange as IntRange
    from triton_ops.space.tunable import PowerOfTwo as PowerOfTwo
    from triton_ops.space.tunable import Tunable as Tunable
