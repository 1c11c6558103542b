"""An autotuner for Triton kernels and Python callables: measured, verified, remembered, explained.

The names below are imported when they are first used, so that `import triton_ops` itself loads
neither torch nor Triton.
"""

import sys
from importlib import import_module

from triton_ops._faces import Upward, before_forks, lazy_face

__version__ = "0.1.0"

with lazy_face(__name__):
    from triton_ops.backend import FunctionKernel as FunctionKernel
    from triton_ops.backend import LauncherKernel as LauncherKernel
    from triton_ops.backend import Operation as Operation
    from triton_ops.backend import TritonKernel as TritonKernel
    from triton_ops.backend import operation as operation
    from triton_ops.backend import use_ptxas as use_ptxas
    from triton_ops.benchmark import FP8_GEMM_CONFIGS as FP8_GEMM_CONFIGS
    from triton_ops.benchmark import GATED_MLP_CONFIGS as GATED_MLP_CONFIGS
    from triton_ops.benchmark import RMSNORM_ROPE_CONFIGS as RMSNORM_ROPE_CONFIGS
    from triton_ops.benchmark import Advice as Advice
    from triton_ops.benchmark import BenchmarkSuite as BenchmarkSuite
    from triton_ops.benchmark import Check as Check
    from triton_ops.benchmark import Comparison as Comparison
    from triton_ops.benchmark import ConfigCache as ConfigCache
    from triton_ops.benchmark import CorrectnessVerifier as CorrectnessVerifier
    from triton_ops.benchmark import PerformanceProfile as PerformanceProfile
    from triton_ops.benchmark import PerformanceReport as PerformanceReport
    from triton_ops.benchmark import Times as Times
    from triton_ops.benchmark import TritonAutoTuner as TritonAutoTuner
    from triton_ops.benchmark import check as check
    from triton_ops.benchmark import compare as compare
    from triton_ops.benchmark import compute_elementwise_metrics as compute_elementwise_metrics
    from triton_ops.benchmark import compute_gemm_metrics as compute_gemm_metrics
    from triton_ops.benchmark import filter_valid_configs as filter_valid_configs
    from triton_ops.benchmark import generate_configs as generate_configs
    from triton_ops.benchmark import get_default_config as get_default_config
    from triton_ops.benchmark import time_ms as time_ms
    from triton_ops.cost_model import AttentionTiles as AttentionTiles
    from triton_ops.cost_model import ElementTiles as ElementTiles
    from triton_ops.cost_model import GemmTiles as GemmTiles
    from triton_ops.cost_model import RowTiles as RowTiles
    from triton_ops.dispatch import Chooser as Chooser
    from triton_ops.dispatch import Decision as Decision
    from triton_ops.dispatch import Implementation as Implementation
    from triton_ops.dispatch import LaunchedConfig as LaunchedConfig
    from triton_ops.dispatch import autotune as autotune
    from triton_ops.dispatch import choose as choose
    from triton_ops.dispatch import install as install
    from triton_ops.dispatch import launches as launches
    from triton_ops.dispatch import on_miss as on_miss
    from triton_ops.dispatch import replaying as replaying
    from triton_ops.dispatch import serve as serve
    from triton_ops.dispatch import tune_in_place as tune_in_place
    from triton_ops.dispatch import tuning as tuning
    from triton_ops.dispatch import uninstall as uninstall
    from triton_ops.dispatch import use_lockfile as use_lockfile
    from triton_ops.exceptions import CacheError as CacheError
    from triton_ops.exceptions import ConfigCollisionError as ConfigCollisionError
    from triton_ops.exceptions import ConfigValueError as ConfigValueError
    from triton_ops.exceptions import ConstraintError as ConstraintError
    from triton_ops.exceptions import DeviceError as DeviceError
    from triton_ops.exceptions import EmptySpaceError as EmptySpaceError
    from triton_ops.exceptions import FixedGridWarning as FixedGridWarning
    from triton_ops.exceptions import KernelTypeError as KernelTypeError
    from triton_ops.exceptions import LockfileError as LockfileError
    from triton_ops.exceptions import MissingDependencyError as MissingDependencyError
    from triton_ops.exceptions import NotLoadedError as NotLoadedError
    from triton_ops.exceptions import NumericalOverflowError as NumericalOverflowError
    from triton_ops.exceptions import ProfileError as ProfileError
    from triton_ops.exceptions import RecordingError as RecordingError
    from triton_ops.exceptions import RunLogError as RunLogError
    from triton_ops.exceptions import SettingsError as SettingsError
    from triton_ops.exceptions import ShapeMismatchError as ShapeMismatchError
    from triton_ops.exceptions import SpaceError as SpaceError
    from triton_ops.exceptions import TargetError as TargetError
    from triton_ops.exceptions import TritonKernelError as TritonKernelError
    from triton_ops.exceptions import TuningFailedError as TuningFailedError
    from triton_ops.exceptions import UnknownTunableError as UnknownTunableError
    from triton_ops.exceptions import UnsupportedDtypeError as UnsupportedDtypeError
    from triton_ops.exceptions import UntunedError as UntunedError
    from triton_ops.exceptions import WrongResultError as WrongResultError
    from triton_ops.kernel_ir import bank_conflicts as bank_conflicts
    from triton_ops.kernel_ir import bank_padding as bank_padding
    from triton_ops.many import ManyResult as ManyResult
    from triton_ops.many import ProblemOutcome as ProblemOutcome
    from triton_ops.many import tune_many as tune_many
    from triton_ops.records import recall as recall
    from triton_ops.records import share_lockfile as share_lockfile
    from triton_ops.records import share_records as share_records
    from triton_ops.request import Budget as Budget
    from triton_ops.request import Effort as Effort
    from triton_ops.request import Patience as Patience
    from triton_ops.request import TuneProblem as TuneProblem
    from triton_ops.search import CoordinateDescent as CoordinateDescent
    from triton_ops.search import Searcher as Searcher
    from triton_ops.ship import Portfolio as Portfolio
    from triton_ops.ship import Prepared as Prepared
    from triton_ops.ship import choose_portfolio as choose_portfolio
    from triton_ops.ship import prepare as prepare
    from triton_ops.ship import serve_idle as serve_idle
    from triton_ops.space import Choice as Choice
    from triton_ops.space import Config as Config
    from triton_ops.space import ConfigSpace as ConfigSpace
    from triton_ops.space import Constraint as Constraint
    from triton_ops.space import Flag as Flag
    from triton_ops.space import IntRange as IntRange
    from triton_ops.space import PowerOfTwo as PowerOfTwo
    from triton_ops.space import SpaceSize as SpaceSize
    from triton_ops.timing import RacePolicy as RacePolicy
    from triton_ops.timing import ScreenPolicy as ScreenPolicy
    from triton_ops.tuner import release_processes as release_processes
    from triton_ops.tuner import tune as tune
    from triton_ops.values import Contents as Contents
    from triton_ops.values import KernelMetrics as KernelMetrics
    from triton_ops.values import Measurement as Measurement
    from triton_ops.values import Problem as Problem
    from triton_ops.values import Status as Status
    from triton_ops.values import TensorSpec as TensorSpec
    from triton_ops.values import Tolerance as Tolerance
    from triton_ops.values import Trial as Trial
    from triton_ops.values import TuningResult as TuningResult
    from triton_ops.values import Work as Work
    from triton_ops_kernels import FP8Format as FP8Format
    from triton_ops_kernels import FP8Linear as FP8Linear
    from triton_ops_kernels import FusedGatedMLP as FusedGatedMLP
    from triton_ops_kernels import FusedRMSNormRoPE as FusedRMSNormRoPE
    from triton_ops_kernels import chooser as chooser
    from triton_ops_kernels import dequantize_fp8 as dequantize_fp8
    from triton_ops_kernels import flash_attention as flash_attention
    from triton_ops_kernels import flash_attention_with_lse as flash_attention_with_lse
    from triton_ops_kernels import fused_gated_mlp as fused_gated_mlp
    from triton_ops_kernels import fused_rmsnorm_rope as fused_rmsnorm_rope
    from triton_ops_kernels import quantize_fp8 as quantize_fp8
    from triton_ops_kernels import quantize_fp8_with_overflow_handling as quantize_fp8_with_overflow_handling
    from triton_ops_kernels.fp8_gemm import fp8_gemm as fp8_gemm
    from triton_ops_kernels.grouped_matmul import grouped_matmul as grouped_matmul
    from triton_ops_kernels.layer_norm import layer_norm as layer_norm
    from triton_ops_kernels.matmul import matmul as matmul
    from triton_ops_kernels.softmax import softmax as softmax
    from triton_ops_lab import RankedConfig as RankedConfig
    from triton_ops_lab import cure_spills as cure_spills
    from triton_ops_lab import rank as rank
    from triton_ops_lab import read_profile as read_profile
    from triton_ops_torch import CompileMode as CompileMode
    from triton_ops_torch import CompileReport as CompileReport
    from triton_ops_torch import PrintedTune as PrintedTune
    from triton_ops_torch import advise as advise
    from triton_ops_torch import parse_printed as parse_printed
    from triton_ops_torch import tune_compile as tune_compile

Upward.places |= {
    "a call of an operation": ("triton_ops.dispatch.operations", "called"),
    "a shipped kernel": ("triton_ops_kernels", "load"),
    "the names of shipped kernels": ("triton_ops_kernels", "names"),
    "a benchmark of a shipped kernel": ("triton_ops_kernels", "documented_case"),
    "a comparison of all shipped kernels": ("triton_ops_kernels", "bench_kernels"),
    "hints of pitfalls": ("triton_ops_lint", "hints"),
    "the tunables that matter": ("triton_ops_lab", "sensitivity_of_run"),
}
before_forks(lambda: "torch" in sys.modules and import_module("triton_ops.base.host").note_threads())
