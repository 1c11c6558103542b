"""The public surface is this list; a change of it is a change of this file."""

import importlib
import re
import subprocess
import sys

import pytest

import triton_ops

NAMES = {
    "triton_ops.benchmark.plain_configs": [
        "ConfigCache",
        "FP8_GEMM_CONFIGS",
        "GATED_MLP_CONFIGS",
        "RMSNORM_ROPE_CONFIGS",
        "filter_valid_configs",
        "generate_configs",
        "get_default_config",
    ],
    "triton_ops.benchmark.auto_tuner": [
        "PerformanceProfile",
        "TritonAutoTuner",
        "compute_elementwise_metrics",
        "compute_gemm_metrics",
    ],
    "triton_ops.backend": ["FunctionKernel", "LauncherKernel", "Operation", "TritonKernel", "operation"],
    "triton_ops.dispatch.chooser": ["Chooser", "choose", "serve"],
    "triton_ops.dispatch.implementation": ["Implementation"],
    "triton_ops_kernels.choosers": ["chooser"],
    "triton_ops_lab.spills": ["cure_spills"],
    "triton_ops.search.coordinate": ["CoordinateDescent"],
    "triton_ops_lab.kernel_verdicts": ["read_profile"],
    "triton_ops.dispatch.decorator": ["autotune"],
    "triton_ops.dispatch.in_place": ["tune_in_place"],
    "triton_ops.dispatch.installing": ["install", "uninstall"],
    "triton_ops.dispatch.decision": ["Decision", "LaunchedConfig", "launches"],
    "triton_ops.dispatch.ladder": ["on_miss", "replaying", "use_lockfile"],
    "triton_ops.backend.triton_process": ["use_ptxas"],
    "triton_ops.benchmark.call_profile": ["Advice"],
    "triton_ops_torch.call_profile": ["advise"],
    "triton_ops_torch.compiler_output": ["PrintedTune", "parse_printed"],
    "triton_ops_torch.mode_report": ["CompileReport"],
    "triton_ops_torch.comparing_modes": ["tune_compile"],
    "triton_ops_torch.compile_mode": ["CompileMode"],
    "triton_ops.records.store": ["share_records"],
    "triton_ops.records.lockfile": ["share_lockfile"],
    "triton_ops.benchmark": ["BenchmarkSuite", "CorrectnessVerifier", "PerformanceReport"],
    "triton_ops.exceptions": [
        "CacheError",
        "ConfigCollisionError",
        "ConfigValueError",
        "ConstraintError",
        "DeviceError",
        "EmptySpaceError",
        "FixedGridWarning",
        "KernelTypeError",
        "LockfileError",
        "MissingDependencyError",
        "NotLoadedError",
        "NumericalOverflowError",
        "ProfileError",
        "RecordingError",
        "RunLogError",
        "SettingsError",
        "ShapeMismatchError",
        "SpaceError",
        "TargetError",
        "TritonKernelError",
        "TuningFailedError",
        "UnknownTunableError",
        "UnsupportedDtypeError",
        "UntunedError",
        "WrongResultError",
    ],
    "triton_ops_kernels.attention": ["flash_attention", "flash_attention_with_lse"],
    "triton_ops.dispatch.operations": ["tuning"],
    "triton_ops_kernels.fp8_format": ["FP8Format"],
    "triton_ops_kernels.fp8_gemm": ["fp8_gemm"],
    "triton_ops_kernels.fp8_quantize": ["dequantize_fp8", "quantize_fp8", "quantize_fp8_with_overflow_handling"],
    "triton_ops_kernels.gated_mlp": ["fused_gated_mlp"],
    "triton_ops_kernels.grouped_matmul": ["grouped_matmul"],
    "triton_ops_kernels.layer_norm": ["layer_norm"],
    "triton_ops_kernels.matmul": ["matmul"],
    "triton_ops_kernels.modules": ["FP8Linear", "FusedGatedMLP", "FusedRMSNormRoPE"],
    "triton_ops_kernels.rmsnorm_rope": ["fused_rmsnorm_rope"],
    "triton_ops_kernels.softmax": ["softmax"],
    "triton_ops.kernel_ir.shared_memory": ["bank_conflicts", "bank_padding"],
    "triton_ops.records.recalling": ["recall"],
    "triton_ops_lab.ranking": ["RankedConfig", "rank"],
    "triton_ops.tuner.session": ["release_processes", "tune"],
    "triton_ops.request.request": ["TuneProblem"],
    "triton_ops.ship.portfolio": ["Portfolio", "choose_portfolio"],
    "triton_ops.many.session": ["ManyResult", "ProblemOutcome", "tune_many"],
    "triton_ops.benchmark.checking": ["Check", "check"],
    "triton_ops.benchmark.comparing": ["Comparison", "compare"],
    "triton_ops.benchmark.timing": ["Times", "time_ms"],
    "triton_ops.ship.preparing": ["Prepared", "prepare"],
    "triton_ops.ship.verification": ["serve_idle"],
    "triton_ops.space": [
        "Choice",
        "Config",
        "ConfigSpace",
        "Constraint",
        "Flag",
        "IntRange",
        "PowerOfTwo",
        "SpaceSize",
    ],
    "triton_ops.timing": ["RacePolicy", "ScreenPolicy"],
    "triton_ops.search": ["Searcher"],
    "triton_ops.request.effort": ["Budget", "Effort", "Patience"],
    "triton_ops.values.contents": ["Contents"],
    "triton_ops.values.tensors": ["TensorSpec"],
    "triton_ops.values.tolerance": ["Tolerance"],
    "triton_ops.values.key": ["Problem"],
    "triton_ops.values.trial": [
        "KernelMetrics",
        "Measurement",
        "Status",
        "Trial",
        "TuningResult",
    ],
    "triton_ops.cost_model.attention_tiles": ["AttentionTiles"],
    "triton_ops.cost_model.product_tiles": ["GemmTiles"],
    "triton_ops.cost_model.row_tiles": ["ElementTiles", "RowTiles"],
    "triton_ops.values.work": ["Work"],
}
PAIRS = [(module, name) for module, names in NAMES.items() for name in names]


def test_all_is_this_list_sorted():
    assert triton_ops.__all__ == sorted(name for _, name in PAIRS)


@pytest.mark.parametrize(("module", "name"), PAIRS, ids=[name for _, name in PAIRS])
def test_name_is_the_object_of_its_module(module, name):
    assert getattr(triton_ops, name) is getattr(importlib.import_module(module), name)


@pytest.mark.processes
def test_a_name_is_never_the_module_that_is_called_like_it():
    # `triton_ops_kernels.matmul` and `triton_ops.backend.operations` are modules; the names are not.
    code = (
        "import importlib, pkgutil, types, triton_ops\n"
        "for found in pkgutil.walk_packages(triton_ops.__path__, 'triton_ops.'):\n"
        "    if found.name.rpartition('.')[2] in triton_ops.__all__:\n"
        "        importlib.import_module(found.name)\n"
        "values = {name: getattr(triton_ops, name) for name in triton_ops.__all__}\n"
        "assert not [n for n, v in values.items() if isinstance(v, types.ModuleType)], values"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_dir_lists_every_name_and_the_version():
    assert {*triton_ops.__all__, "__version__"} <= set(dir(triton_ops))


def test_the_version_has_three_numbers():
    assert re.fullmatch(r"\d+\.\d+\.\d+", triton_ops.__version__)


def test_unknown_name_is_an_attribute_error_that_names_it():
    with pytest.raises(AttributeError, match=r"'triton_ops' has no attribute 'tunes'"):
        _ = triton_ops.tunes


def test_every_exception_is_exported():
    exceptions = importlib.import_module("triton_ops.exceptions")
    assert sorted(NAMES["triton_ops.exceptions"]) == exceptions.__all__


@pytest.mark.processes
def test_a_star_import_works_where_torch_is_broken_and_modules_say_why_when_they_are_made(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('libcublas.so.12: no such file')\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from triton_ops import *\n"
        "class Own(FusedGatedMLP): pass\n"
        "for kind in (Own, FP8Linear, FusedGatedMLP, FusedRMSNormRoPE):\n"
        "    try:\n"
        "        kind(64, 64)\n"
        "    except MissingDependencyError as error:\n"
        "        print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("cannot be imported: ImportError: libcublas.so.12: no such file") == 4
