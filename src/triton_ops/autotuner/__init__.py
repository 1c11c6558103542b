"""The documented import path of `ConfigCache`; the spaces of configs are in `configs`, `TritonAutoTuner` in `tuner`."""

from triton_ops import ConfigCache as ConfigCache
from triton_ops.autotuner.configs import *  # noqa: F403 - the page has these names here too
from triton_ops.autotuner.tuner import *  # noqa: F403
