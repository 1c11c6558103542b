"""An autotuner for Triton kernels and Python callables: measured, verified, remembered, explained.

The names below are imported when they are first used, so that `import triton_ops` itself loads
neither torch nor Triton.
"""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # type checkers take it for true; the one in `typing` costs 8 ms to import

if TYPE_CHECKING:  # for type checkers and editors, which cannot follow the table
    from typing import Any

    from triton_ops.autotuner.cache import ConfigCache as ConfigCache
    from triton_ops.autotuner.configs import FP8_GEMM_CONFIGS as FP8_GEMM_CONFIGS
    from triton_ops.autotuner.configs import GATED_MLP_CONFIGS as GATED_MLP_CONFIGS
    from triton_ops.autotuner.configs import RMSNORM_ROPE_CONFIGS as RMSNORM_ROPE_CONFIGS
    from triton_ops.autotuner.configs import filter_valid_configs as filter_valid_configs
    from triton_ops.autotuner.configs import generate_configs as generate_configs
    from triton_ops.autotuner.configs import get_default_config as get_default_config
    from triton_ops.autotuner.metrics import PerformanceProfile as PerformanceProfile
    from triton_ops.autotuner.tuner import TritonAutoTuner as TritonAutoTuner
    from triton_ops.autotuner.tuner import (
        compute_elementwise_metrics as compute_elementwise_metrics,
    )
    from triton_ops.autotuner.tuner import compute_gemm_metrics as compute_gemm_metrics
    from triton_ops.backend import FunctionKernel as FunctionKernel
    from triton_ops.backend import LauncherKernel as LauncherKernel
    from triton_ops.backend import Operation as Operation
    from triton_ops.backend import TritonKernel as TritonKernel
    from triton_ops.backend.assembler import use_ptxas as use_ptxas
    from triton_ops.backend.operation import operation as operation
    from triton_ops.benchmark import BenchmarkSuite as BenchmarkSuite
    from triton_ops.benchmark import CorrectnessVerifier as CorrectnessVerifier
    from triton_ops.benchmark import PerformanceReport as PerformanceReport
    from triton_ops.cache.layered import share_records as share_records
    from triton_ops.cache.shared_lockfiles import share_lockfile as share_lockfile
    from triton_ops.choices.choose import choose as choose
    from triton_ops.choices.chooser import Chooser as Chooser
    from triton_ops.choices.implementation import Implementation as Implementation
    from triton_ops.choices.override import serve as serve
    from triton_ops.choices.ready import chooser as chooser
    from triton_ops.comparison.compare import Comparison as Comparison
    from triton_ops.comparison.compare import compare as compare
    from triton_ops.comparison.timing import Times as Times
    from triton_ops.comparison.timing import time_ms as time_ms
    from triton_ops.compile_modes.advice import Advice as Advice
    from triton_ops.compile_modes.advice import advise as advise
    from triton_ops.compile_modes.report import CompileReport as CompileReport
    from triton_ops.compile_modes.session import tune_compile as tune_compile
    from triton_ops.cures.session import cure_spills as cure_spills
    from triton_ops.dispatch.decision import Decision as Decision
    from triton_ops.dispatch.decorator import autotune as autotune
    from triton_ops.dispatch.install import install as install
    from triton_ops.dispatch.install import uninstall as uninstall
    from triton_ops.dispatch.ledger import LaunchedConfig as LaunchedConfig
    from triton_ops.dispatch.ledger import launches as launches
    from triton_ops.dispatch.policy import on_miss as on_miss
    from triton_ops.dispatch.printed import PrintedTune as PrintedTune
    from triton_ops.dispatch.printed import parse_printed as parse_printed
    from triton_ops.dispatch.sources import replaying as replaying
    from triton_ops.dispatch.sources import use_lockfile as use_lockfile
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
    from triton_ops.expectation.rank import RankedConfig as RankedConfig
    from triton_ops.expectation.rank import rank as rank
    from triton_ops.hardware.banks import bank_conflicts as bank_conflicts
    from triton_ops.hardware.banks import bank_padding as bank_padding
    from triton_ops.history.recall import recall as recall
    from triton_ops.inductor.modes import CompileMode as CompileMode
    from triton_ops.kernels.attention import flash_attention as flash_attention
    from triton_ops.kernels.attention import flash_attention_with_lse as flash_attention_with_lse
    from triton_ops.kernels.choice import tuning as tuning
    from triton_ops.kernels.fp8_format import FP8Format as FP8Format
    from triton_ops.kernels.fp8_gemm import fp8_gemm as fp8_gemm
    from triton_ops.kernels.fp8_gemm.module import FP8Linear as FP8Linear
    from triton_ops.kernels.fp8_quantize import dequantize_fp8 as dequantize_fp8
    from triton_ops.kernels.fp8_quantize import quantize_fp8 as quantize_fp8
    from triton_ops.kernels.fp8_quantize import (
        quantize_fp8_with_overflow_handling as quantize_fp8_with_overflow_handling,
    )
    from triton_ops.kernels.gated_mlp import fused_gated_mlp as fused_gated_mlp
    from triton_ops.kernels.gated_mlp.module import FusedGatedMLP as FusedGatedMLP
    from triton_ops.kernels.grouped_matmul import grouped_matmul as grouped_matmul
    from triton_ops.kernels.layer_norm import layer_norm as layer_norm
    from triton_ops.kernels.matmul import matmul as matmul
    from triton_ops.kernels.rmsnorm_rope import fused_rmsnorm_rope as fused_rmsnorm_rope
    from triton_ops.kernels.rmsnorm_rope.module import FusedRMSNormRoPE as FusedRMSNormRoPE
    from triton_ops.kernels.softmax import softmax as softmax
    from triton_ops.many.problem import TuneProblem as TuneProblem
    from triton_ops.many.session import ManyResult as ManyResult
    from triton_ops.many.session import ProblemOutcome as ProblemOutcome
    from triton_ops.many.session import tune_many as tune_many
    from triton_ops.measure import RacePolicy as RacePolicy
    from triton_ops.measure import ScreenPolicy as ScreenPolicy
    from triton_ops.portfolios.session import Portfolio as Portfolio
    from triton_ops.portfolios.session import choose_portfolio as choose_portfolio
    from triton_ops.problem import Problem as Problem
    from triton_ops.profiles.report import read_profile as read_profile
    from triton_ops.ranking.attention import AttentionTiles as AttentionTiles
    from triton_ops.ranking.gemm import GemmTiles as GemmTiles
    from triton_ops.ranking.rows import ElementTiles as ElementTiles
    from triton_ops.ranking.rows import RowTiles as RowTiles
    from triton_ops.runner.idle import release_processes as release_processes
    from triton_ops.runner.session import tune as tune
    from triton_ops.search import Searcher as Searcher
    from triton_ops.search.coordinate import CoordinateDescent as CoordinateDescent
    from triton_ops.serving.prepare import Prepared as Prepared
    from triton_ops.serving.prepare import prepare as prepare
    from triton_ops.space import Choice as Choice
    from triton_ops.space import Config as Config
    from triton_ops.space import ConfigSpace as ConfigSpace
    from triton_ops.space import Constraint as Constraint
    from triton_ops.space import Flag as Flag
    from triton_ops.space import IntRange as IntRange
    from triton_ops.space import PowerOfTwo as PowerOfTwo
    from triton_ops.space import SpaceSize as SpaceSize
    from triton_ops.task.budget import Budget as Budget
    from triton_ops.task.effort import Effort as Effort
    from triton_ops.task.effort import Patience as Patience
    from triton_ops.tensors import TensorSpec as TensorSpec
    from triton_ops.tolerance import Tolerance as Tolerance
    from triton_ops.trial import KernelMetrics as KernelMetrics
    from triton_ops.trial import Measurement as Measurement
    from triton_ops.trial import Status as Status
    from triton_ops.trial import Trial as Trial
    from triton_ops.trial import TuningResult as TuningResult
    from triton_ops.work import Work as Work

_NAMES_IN = {
    "autotuner.cache": "ConfigCache",
    "autotuner.configs": (
        "FP8_GEMM_CONFIGS GATED_MLP_CONFIGS RMSNORM_ROPE_CONFIGS "
        "filter_valid_configs generate_configs get_default_config"
    ),
    "autotuner.metrics": "PerformanceProfile",
    "autotuner.tuner": "TritonAutoTuner compute_elementwise_metrics compute_gemm_metrics",
    "benchmark": "BenchmarkSuite CorrectnessVerifier PerformanceReport",
    "backend": "FunctionKernel LauncherKernel Operation TritonKernel operation",
    "choices.choose": "choose",
    "choices.chooser": "Chooser",
    "choices.implementation": "Implementation",
    "choices.override": "serve",
    "choices.ready": "chooser",
    "cures.session": "cure_spills",
    "dispatch.decision": "Decision",
    "dispatch.decorator": "autotune",
    "dispatch.install": "install uninstall",
    "dispatch.ledger": "LaunchedConfig launches",
    "dispatch.policy": "on_miss",
    "dispatch.printed": "PrintedTune parse_printed",
    "dispatch.sources": "replaying use_lockfile",
    "backend.assembler": "use_ptxas",
    "cache.layered": "share_records",
    "cache.shared_lockfiles": "share_lockfile",
    "exceptions": (
        "CacheError ConfigCollisionError ConfigValueError ConstraintError DeviceError "
        "EmptySpaceError FixedGridWarning KernelTypeError LockfileError MissingDependencyError NotLoadedError "
        "NumericalOverflowError ProfileError RecordingError RunLogError SettingsError "
        "ShapeMismatchError SpaceError TargetError TritonKernelError TuningFailedError "
        "UnknownTunableError UnsupportedDtypeError UntunedError WrongResultError"
    ),
    "hardware.banks": "bank_conflicts bank_padding",
    "history.recall": "recall",
    "kernels.attention": "flash_attention flash_attention_with_lse",
    "kernels.choice": "tuning",
    "kernels.fp8_format": "FP8Format",
    "kernels.fp8_gemm": "fp8_gemm",
    "kernels.fp8_gemm.module": "FP8Linear",
    "kernels.fp8_quantize": "dequantize_fp8 quantize_fp8 quantize_fp8_with_overflow_handling",
    "kernels.gated_mlp": "fused_gated_mlp",
    "kernels.gated_mlp.module": "FusedGatedMLP",
    "kernels.grouped_matmul": "grouped_matmul",
    "kernels.layer_norm": "layer_norm",
    "kernels.matmul": "matmul",
    "kernels.rmsnorm_rope": "fused_rmsnorm_rope",
    "kernels.rmsnorm_rope.module": "FusedRMSNormRoPE",
    "kernels.softmax": "softmax",
    "expectation.rank": "RankedConfig rank",
    "runner.idle": "release_processes",
    "runner.session": "tune",
    "comparison.compare": "Comparison compare",
    "compile_modes.advice": "Advice advise",
    "compile_modes.report": "CompileReport",
    "compile_modes.session": "tune_compile",
    "inductor.modes": "CompileMode",
    "comparison.timing": "Times time_ms",
    "serving.prepare": "Prepared prepare",
    "space": "Choice Config ConfigSpace Constraint Flag IntRange PowerOfTwo SpaceSize",
    "many.problem": "TuneProblem",
    "many.session": "ManyResult ProblemOutcome tune_many",
    "measure": "RacePolicy ScreenPolicy",
    "search": "Searcher",
    "search.coordinate": "CoordinateDescent",
    "task.budget": "Budget",
    "task.effort": "Effort Patience",
    "tensors": "TensorSpec",
    "tolerance": "Tolerance",
    "portfolios.session": "Portfolio choose_portfolio",
    "problem": "Problem",
    "trial": "KernelMetrics Measurement Status Trial TuningResult",
    "profiles.report": "read_profile",
    "ranking.attention": "AttentionTiles",
    "ranking.gemm": "GemmTiles",
    "ranking.rows": "ElementTiles RowTiles",
    "work": "Work",
}
_MODULE_OF = {name: module for module, names in _NAMES_IN.items() for name in names.split()}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
