"""The lint says the same of a kernel whatever decorates it, and whatever its process has read before."""

import ast
from itertools import cycle
from pathlib import Path
from textwrap import indent

import pytest
from triton import Config
from triton.runtime.autotuner import Autotuner

import triton_ops
from tests.cpu.lint.lint_kernels.products import large_tile_bad
from tests.cpu.lint.test_lint import FILES, FOLDER, planted
from triton_ops_lint.engine import RULES, lint
from triton_ops_lint.jit_functions import tuned_with

pytestmark = pytest.mark.triton
_IMPORTS = (
    "import triton",
    "import triton_ops",
    "import triton_ops as to",
    "import triton_ops.dispatch as rooms",
    "from triton_ops import autotune",
    "from triton_ops import autotune as tuned",
)
_LIST = "[triton.Config({}, num_warps=4)]"
_DECORATORS = (
    f"@triton_ops.autotune({_LIST}, [])",
    f"@triton.autotune(configs={_LIST}, key=[])",
    f"@to.autotune(configs={_LIST}, key=[], on_miss='default', effort='quick')",
    f"@autotune(configs={_LIST}, key=[], prune_configs_by=None)",
    f"@tuned({_LIST}, key=[], cache_dir='records')\n@triton.heuristics({{}})",
    f"@triton.heuristics(values={{}})\n@rooms.autotune({_LIST}, key=[])",
)


def decorated(name: str, decorators) -> str:
    """A file of kernels, each below the next decorator; one that is tuned is tuned by this package instead."""
    text = (FOLDER / f"{name}.py").read_text()
    lines, tree = text.replace("@triton.autotune(", "@triton_ops.autotune(").splitlines(), ast.parse(text)
    kernels = [node for node in tree.body if "triton.jit" in map(ast.unparse, getattr(node, "decorator_list", ()))]
    helpers = {one.id for kernel in kernels for one in ast.walk(kernel) if isinstance(one, ast.Name)}
    for node in reversed(kernels):
        if len(node.decorator_list) == 1 and node.name not in helpers:
            lines.insert(node.decorator_list[0].lineno - 1, next(decorators))
    lines[lines.index("import triton")] = "\n".join(_IMPORTS)
    return "\n".join(lines)


OF_ONE_CONFIG = {"bank-conflict", "lost-occupancy", "narrow-access"}  # undecided of a list that leaves out tiles


@pytest.mark.processes
def test_planted_pitfalls_are_found_under_every_decorator(tmp_path):
    rules = {rule.id for rule in RULES} - OF_ONE_CONFIG
    decorators, files = cycle(_DECORATORS), FILES[::3]  # dozens of kernels: each decorator stands above several
    for name in files:
        (tmp_path / f"{name}.py").write_text(decorated(name, decorators))
    report = lint(tmp_path, rules=sorted(rules))
    assert not report.unread
    findings = sorted((Path(one.file).stem, one.line, one.rule) for one in report.findings)
    marks = {(name, *one) for name in files for one in planted(tmp_path / f"{name}.py")}
    assert findings == sorted(one for one in marks if one[-1] in rules)


KERNEL = """
import triton
import triton.language as tl
{imported}

{decorator}
@triton.jit
def spread(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y, tl.sum(tl.load(x + at)))

def launch(x, y, n):
    spread[lambda meta: (triton.cdiv(n, meta["B"]),)](x, y, n)
"""
PITFALLS = ["missing-mask", "overlapping-writes"]


@pytest.mark.processes
def test_a_kernel_under_every_decorator_has_its_pitfalls_alone_and_beside_others(tmp_path):
    for at, decorator in enumerate((*_DECORATORS, "")):
        decorator = decorator.replace("({}, num", "({'B': 128}, num")
        text = KERNEL.format(imported="\n".join(_IMPORTS), decorator=decorator)
        if not decorator:
            text = text.replace("meta:", "_meta:").replace('meta["B"]', "64").replace("x, y, n)\n", "x, y, n, B=64)\n")
        (tmp_path / f"kernel_{at}.py").write_text(text)
        alone = lint(tmp_path / f"kernel_{at}.py", rules=PITFALLS)
        assert [one.rule for one in alone.findings] == PITFALLS, decorator
        (tmp_path / f"kernel_{at}.py").write_text(f"import torch\n{text}")
    (tmp_path / "torch_user.py").write_text("import torch, triton\nONE = torch.ones(1)\n")
    beside = lint(tmp_path, rules=PITFALLS)
    assert [one.rule for one in beside.findings] == PITFALLS * (len(_DECORATORS) + 1)
    assert not beside.undecided


@pytest.mark.processes
@pytest.mark.parametrize("no_run", [False, True])
def test_names_of_an_import_of_all_are_known(tmp_path, no_run):
    decorators = f"@autotune({_LIST}, [])".replace("({}, num", "({'B': 128}, num")
    text = KERNEL.format(imported="from triton_ops import *", decorator=decorators)
    text = text.replace("import triton.language as tl", "from triton.language import *").replace("tl.", "")
    (tmp_path / "all_names.py").write_text(text)
    report = lint(tmp_path, rules=PITFALLS, no_run=no_run)
    assert ([one.rule for one in report.findings], report.undecided) == (PITFALLS, ())


_IMPORT = "import triton\nimport triton.language as tl\n"
_INDENTED = indent(_IMPORT, "    ")
GUARDS = (
    f"try:\n{_INDENTED}except ImportError:\n    triton = None\nif triton is not None:",
    f"try:\n{_INDENTED}except ImportError:\n    pass\nelse:",
    f'from importlib.util import find_spec\nif find_spec("triton"):\n{_INDENTED}',
    f"import contextlib\nwith contextlib.suppress(ImportError):\n{_INDENTED}",
    f"{_IMPORT}for _ in range(1):",
)


@pytest.mark.processes
def test_a_kernel_in_a_block_of_the_top_level_and_one_of_a_class_there_are_read(tmp_path):
    _, _, kernel = KERNEL.partition("{decorator}")
    inside = kernel.replace("spread", "inside").partition("def launch")[0]
    for at, guard in enumerate(GUARDS):
        block = indent(f"{kernel}class Holder:{indent(inside, '    ')}", "    ")
        (tmp_path / f"guarded_{at}.py").write_text(f"{guard}\n{block}")
    report = lint(tmp_path, rules=PITFALLS)
    assert [one.rule for one in report.findings] == PITFALLS * len(GUARDS)
    assert [one.kernel for one in report.undecided] == ["inside"] * len(report.findings)


@pytest.mark.processes
def test_a_neighbour_that_is_imported_in_a_block_is_found_from_any_folder(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "lists.py").write_text("import triton\nLIST = [triton.Config({'B': 128})]\n")
    imported = "try:\n    from .lists import LIST\nexcept ImportError:\n    from lists import LIST\n"
    text = KERNEL.format(imported=imported, decorator="@triton.autotune(LIST, key=[])")
    (package / "kernel.py").write_text(text)
    assert [one.rule for one in lint(package / "kernel.py", rules=PITFALLS).findings] == PITFALLS


class OwnPruning(Autotuner):
    """An autotuner of a library, which leaves configs out by a method of its own."""

    def prune_configs(self, kwargs):
        return super().prune_configs(kwargs)[:1]


@pytest.mark.parametrize(
    ("kind", "pruning", "prunes"),
    [
        (Autotuner, None, False),
        (Autotuner, {"early_config_prune": lambda configs, *_, **__: configs}, True),
        (Autotuner, {"perf_model": lambda **_: 1.0, "top_k": 1}, True),
        (OwnPruning, None, True),
    ],
)
def test_a_function_a_model_and_a_subclass_may_leave_configs_out(kind, pruning, prunes):
    tuner = kind(large_tile_bad, large_tile_bad.arg_names, [Config({})], [], None, None, prune_configs_by=pruning)
    assert tuned_with(tuner)["prunes"] is prunes
    ours = triton_ops.autotune([Config({})], [], pruning)(large_tile_bad)
    assert tuned_with(ours)["prunes"] is (pruning is not None)


@pytest.mark.processes
def test_what_a_key_has_and_the_kernel_never_reads_is_said(tmp_path):
    file = FOLDER / "sharing.py"
    reasons = {one.kernel: one.why for one in lint(file, rules=["idle-key"]).undecided}
    assert "how many programs" in reasons["copy_by_rows"]
    assert "decided by callers" in reasons["copy_of_a_batch"]
    (tmp_path / "typo.py").write_text(TYPO)
    (finding,) = lint(tmp_path / "typo.py", rules=["idle-key"]).findings
    assert "the key has N, which is no argument" in finding.evidence


TYPO = """
import triton
import triton.language as tl

@triton.autotune(configs=[triton.Config({"B": 128}), triton.Config({"B": 256})], key=["N", "even"])
@triton.heuristics({"EVEN": lambda args: args["even"] % 2 == 0})
@triton.jit
def copied(x, y, n, even, EVEN: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)
"""
