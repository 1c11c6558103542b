"""The lint on kernels with planted pitfalls, each beside one without; every finding has its "
"line, and there are no others."""

import ast
import importlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import pytest

from triton_ops.cli.app import main
from triton_ops.exceptions import DeviceError, TargetError
from triton_ops_lint import apart
from triton_ops_lint.command_lint import as_sarif
from triton_ops_lint.engine import RULES, lint, readings_of
from triton_ops_lint.findings import LintReport, Undecided
from triton_ops_lint.jit_functions import launches
from triton_ops_lint.rules import compiled_costs

pytestmark = pytest.mark.triton
FOLDER = Path(__file__).parent / "lint_kernels"
PROJECT = Path(__file__).parents[3]
FILES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")
TRITON = tuple(map(int, version("triton").split(".")[:2]))
if TRITON >= (3, 9):
    FILES.remove("block_pointers")  # this Triton has none
_MARK = re.compile(r"# finds(?: before 3\.(\d+))?: ([\w, -]+)")


@lru_cache
def linted(name: str) -> LintReport:
    return lint(FOLDER / f"{name}.py")


def planted(file: Path) -> Iterator[tuple[int, str]]:
    for line, text in enumerate(file.read_text().splitlines(), start=1):
        if (result := _MARK.search(text)) is not None and (result[1] is None or (3, int(result[1])) > TRITON):
            yield from ((line, rule.strip()) for rule in result[2].split(","))


@pytest.mark.processes
@pytest.mark.parametrize("name", FILES)
def test_every_planted_pitfall_is_found_in_its_line_and_nothing_else_is(name):
    result = {(one.line, one.rule) for one in linted(name).findings}
    assert sorted(result) == sorted(set(planted(FOLDER / f"{name}.py")))


@pytest.mark.processes
@pytest.mark.parametrize("name", FILES)
def test_every_kernel_is_read(name):
    unread = [one for one in linted(name).undecided if "front end refuses" in one.why or "cannot be read" in one.why]
    refused = {"not_constant_bad", "not_constant_through_a_helper_bad", "not_constant_turns_bad"}
    assert {one.kernel for one in unread} <= refused


def test_every_rule_is_documented_and_planted():
    page = (PROJECT / "docs" / "reference" / "lint.md").read_text()
    assert [rule.id for rule in RULES if f"| `{rule.id}` |" not in page or not rule.about.count("\n\n")] == []
    marked = {rule for name in FILES for _, rule in planted(FOLDER / f"{name}.py")}
    assert [rule.id for rule in RULES if rule.id not in marked and rule.level not in ("run", "model")] == []


@pytest.mark.processes
def test_what_only_callers_decide_is_undecided_where_the_launch_does_not_show_it():
    message = {(one.kernel, one.rule): one.why for one in linted("launched").undecided}
    assert "neighbours lie stride apart" in message["down_a_column", "narrow-access"]
    assert "1000·program_id(0) is multiplied in 32 bits" in message["folded_rows", "offset-overflow"]
    assert "1000·program_id(0) is multiplied in 32 bits" in message["rows_of_a_number", "offset-overflow"]
    assert "a number that is loaded" in message["ended_by_data", "missing-mask"]
    assert "where a launch chooses such a type" in message["sum_in_a_type_of_the_caller", "low-precision-sum"]
    assert ("heads_of_a_wide_token", "offset-overflow") not in message
    assert ("annotated_wide", "offset-overflow") not in message
    assert "what values the whole numbers have" in message["last_of_some_numbers", "wrong-identity"]
    assert "no launch in the file shows it" in message["chunks_of_a_sequence", "missing-mask"]
    assert ("parts_of_a_buffer", "missing-mask") not in message
    beside = {(one.kernel, one.rule): one.why for one in linted("extents").undecided}
    assert "the loop carries its sum as f16" in beside["state_of_a_caller", "low-precision-sum"]
    assert ("numbers_beside_rows_bad", "offset-overflow") not in beside
    assert "compared with the extent of the block" in beside["all_are_in_range", "wrong-identity"]
    assert "which limit is the smaller one" in beside["score_of_valid_rows", "wrong-identity"]
    assert "whether L is 16 or more" in beside["scores_of_a_draft", "no-tensor-core"]
    assert "the caller tests a remainder" in beside["steps_of_a_width", "missing-mask"]
    assert "what a loop before has added" in beside["whole_blocks_and_the_rest", "wrong-identity"]
    assert "a decay's logarithm" in beside["least_of_decays", "wrong-identity"]
    assert "batch·program_id(1) is multiplied in 32 bits" in beside["heads_beside_a_batch", "offset-overflow"]
    assert "whether there is one more is up to callers" in beside["borders_of_parts", "wrong-mask"]
    assert "no launch in the file shows it" in beside["starts_of_all_and_one", "missing-mask"]
    padding = {(one.kernel, one.rule): one.why for one in linted("padding").undecided}
    less = (
        "powers_less_their_padding", "variance_less_its_padding", "zeros_less_their_padding", "powers_less_a_number",
        "powers_of_blocks_less_their_padding",
    )  # fmt: skip
    assert all("makes up for padded lanes by their number" in padding[name, "wrong-identity"] for name in less)
    assert "which limit is the smaller one" in padding["sum_of_exponentials_but_the_first", "wrong-identity"]
    windows = {(one.kernel, one.rule) for one in linted("windows").undecided}
    ended = ("blocks_of_a_count", "rows_to_an_end_of_their_own", "blocks_of_a_number_of_heads")
    assert windows >= {(name, "missing-mask") for name in ended}
    elsewhere = {(one.kernel, one.rule): one.why for one in linted("elsewhere").undecided}
    assert ("columns_of_a_divided_width_good", "missing-mask") not in elsewhere
    assert ("running_maximum_from_zero_good", "wrong-identity") not in elsewhere
    assert "no launch in the file shows it" in elsewhere["has_its_parameters", "missing-mask"]
    assert "beside buckets of a size" in elsewhere["size_in_the_key", "over-specialised"]
    assert "whose rows are chosen by data" in elsewhere["rows_of_a_table", "over-specialised"]
    assert "no launch in the file shows it" in elsewhere["reshaped_before_good", "stride-order"]
    assert "the file rounds sizes of tensors up" in elsewhere["rows_that_a_caller_rounds", "missing-mask"]
    assert "no launch in the file shows it" in elsewhere["angles_of_all_places", "missing-mask"]
    assert "put_squares" not in {name for name, _ in linted("elsewhere").kernels}
    assert "of sequences or of a model's experts" in elsewhere["parts_of_tokens", "over-specialised"]
    assert "whether each of them is whole" in elsewhere["largest_of_each_group", "wrong-identity"]
    assert "as probabilities are" in elsewhere["likeliest_after_noise", "wrong-identity"]
    assert "one load puts -inf there" in elsewhere["largest_after_a_bias", "wrong-identity"]
    assert "another branch ends the index" in elsewhere["last_block_by_a_test", "missing-mask"]
    assert {("rows_of_a_weight", "missing-mask"), ("loop_to_a_loaded_end", "missing-mask")} <= elsewhere.keys()
    assert "M is a size that is no constant beside it" in elsewhere["width_beside_rows", "over-specialised"]
    (reading,), _, _ = readings_of(f"{FOLDER / 'host_descriptors.py'}:product_good")
    assert reading.uses.pointers.keys() == reading.uses.descriptors.keys() == {"a", "b", "c"}
    described = {(one.kernel, one.rule): one.why for one in linted("host_descriptors").undecided}
    assert "of the descriptor ends callers say" in described["softmax_up_to_an_argument", "wrong-identity"]


LAUNCHER = """
def launch(x, n):
    {refusal}
    y = torch.empty_like(x)
    z = x.to(torch.float8_e4m3fn)
    kernel[(n,)](x, y, z, x.stride(0), x.stride(1), y.stride(0), y.stride(1))
"""


@pytest.mark.parametrize(
    ("refusal", "ones"),
    [
        ("n = n + 1", {"x1", "y1"}),
        ("assert x.stride(0) == 1 or x.stride(1) == 1", {"x1", "y1"}),
        ("assert x.stride(0) == 1 and n > 0", {"x0", "y0"}),
        ("is_first = (x.stride(0) == 1) & (x.stride(1) > 1)\n    if not is_first: raise ValueError", {"x0", "y0"}),
        ("if not x.stride(0) == 1: assert 0, 'no such layout'", {"x0", "y0"}),
        ("if not x.stride(0) == 1: n = 1", {"x1", "y1"}),
    ],
)
def test_a_stride_of_one_is_the_one_that_a_launch_asserts(refusal, ones):
    names = ("x", "y", "z", "x0", "x1", "y0", "y1")
    (launch,) = launches(ast.parse(LAUNCHER.format(refusal=refusal)), "kernel", names)
    assert launch.inner_strides == ones
    assert [launch.element(name) for name in names[:3]] == ["", "", "fp8e4nv"]


def test_a_config_that_a_function_may_leave_out_is_undecided_where_it_spills():
    (reading,), _, _ = readings_of(f"{FOLDER / 'products.py'}:large_tile_bad")
    (one,) = compiled_costs.register_spill.statements(replace(reading, prunes=True))
    assert isinstance(one, Undecided)
    assert "may leave out this one" in one.why


@pytest.mark.processes
def test_a_file_that_asks_for_a_driver_is_read_without_one(tmp_path):
    path = written(tmp_path)
    asks = "triton.runtime.driver.active.get_current_target().backend == 'cuda'"
    tuned = f"@triton.autotune([triton.Config({{}})] if {asks} else [], [])\n@triton.jit"
    path.write_text(path.read_text().replace("@triton.jit", tuned, 1))
    assert [one.rule for one in lint(path).findings] == ["missing-mask"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("num_stages=1000000", "num_stages is 1,000,000; Triton writes a loop out for each, and over 64 take minutes"),
        ("num_warps=4096", "4096 warps of 32 are 131,072 threads per block; sm_90 has 1,024"),
        ("num_warps=3", "3 warps are no power of two, which Triton wants"),
    ],
)
@pytest.mark.parametrize("way", ["launch", "launch with a tile that is not seen", "config", "list"])
def test_a_config_that_no_gpu_takes_is_undecided_and_not_compiled(tmp_path, monkeypatch, way, options, reason):
    path = tmp_path / "products.py"
    text, launched = (FOLDER / "products.py").read_text(), "BM=256, BN=128, BK=32, num_warps=4)"
    config = f'triton.Config({{"BM": 256, "BN": 128, "BK": 32}}, {options})'
    configs = "CONFIGS" if way == "list" else f"[{config}]"
    tuned = f"CONFIGS = [{config}]\n\n\n@triton.autotune({configs}, key=[])\n@triton.jit\ndef large_tile_bad("
    if way.startswith("launch"):
        given = f"BM=256, BN=128, BK={'32' if way == 'launch' else 'M // 8'}, {options})"
        path.write_text(text.replace(launched, given))
    else:
        path.write_text(text.replace("@triton.jit\ndef large_tile_bad(", tuned).replace(f", {launched}", ")"))
    monkeypatch.setattr(compiled_costs, "compile_variant", lambda *_: pytest.fail("it was compiled"))
    (reading,), _, _ = readings_of(f"{path}:large_tile_bad")
    (one,) = compiled_costs.lost_occupancy.statements(reading)
    assert isinstance(one, Undecided)
    assert one.why.endswith(f"is refused: {reason}")


STRIDES = """
import triton, triton.language as tl

@triton.autotune([triton.Config({"M": 256, "N": 256}, num_warps=8)], key=[])
@triton.jit
def copied(x, y, xm, xn, ym, yn, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    tl.store(y + m * ym + n * yn, tl.load(x + m * xm + n * xn))
"""
GATHER = """
import triton, triton.language as tl

@triton.jit
def gathered(x, at, y, M, B: tl.constexpr):
    j = tl.arange(0, B * B)
    total = tl.zeros((B,), dtype=tl.float32)
    for first in range(0, M, B * B):
        one = tl.gather(tl.load(x + first + j), tl.load(at + first + j).to(tl.int32), 0)
        total += tl.sum(tl.reshape(one, (B, B)).to(tl.float32), 0)
    tl.store(y + tl.arange(0, B), total)

def run(x, at, y):
    gathered[(1,)](x, at, y, x.shape[0], B=32, num_warps=4)
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("text", "rule", "reason"),
    [
        (
            STRIDES,
            compiled_costs.register_spill,
            "with 1 for the last stride of each tensor it does not, and which is 1 is not in the file",
        ),
        (GATHER, compiled_costs.bank_conflict, "which banks of shared memory it asks for is not read from its PTX"),
    ],
)
def test_what_a_compiled_kernel_does_not_show_is_undecided(tmp_path, text, rule, reason):
    path = tmp_path / "kernels.py"
    path.write_text(text)
    (reading,), _, _ = readings_of(str(path))
    (one,) = rule.statements(reading)
    assert isinstance(one, Undecided)
    assert reason in one.why


def test_the_last_stride_of_a_tensor_of_which_no_launch_says_any_is_1():
    (reading,), _, _ = readings_of(f"{FOLDER / 'products.py'}:scale_good")
    variant = reading.variants[0]
    unsaid = replace(variant, guess=replace(variant.guess, ones=frozenset()))
    assert compiled_costs._contiguous(unsaid).guess.ones == variant.guess.ones == {"xn", "yn"}


def test_the_lists_that_were_judged_are_what_the_page_says_of_them():
    draws = json.loads((PROJECT / "benchmarks" / "results" / "lint" / "judged.json").read_text())["draws"]
    page = " ".join((PROJECT / "benchmarks" / "results" / "lint" / "README.md").read_text().split())
    false = [sum(row["verdict"] == "false" for row in draw["findings"]) for draw in draws]
    units = [draw.get("unit", "pairs") for draw in draws]  # all findings, or one for each rule of a kernel
    for draw, count, unit in zip(draws, false, units, strict=True):
        parts = ("file", "kernel", "rule", *(["line"] if unit == "findings" else []))
        assert len({tuple(row[part] for part in parts) for row in draw["findings"]}) == len(draw["findings"]) == 60
        assert {row["rule"] for row in draw["findings"]} <= {rule.id for rule in RULES}
        numbers = (draw["files"], draw["kernels"], draw["pool"], draw["pairs"], f"60 {unit}", count)
        assert f"| {' | '.join(map(str, numbers))} |" in page
    of_pairs = [count for count, unit in zip(false, units, strict=True) if unit == "pairs"]
    judged = 60 * len(of_pairs)
    together = f"Together {sum(of_pairs)} of {judged} pairs are false, which is {sum(of_pairs) / judged:.0%}"
    assert together in page.replace(" %", "%")


def test_the_findings_in_a_package_are_those_that_the_page_counts():
    counts = json.loads((PROJECT / "benchmarks" / "results" / "lint" / "liger.json").read_text())
    page = (PROJECT / "benchmarks" / "results" / "lint" / "README.md").read_text()
    _, table = page.split(f"{counts['kernels']} kernels, {sum(counts['findings'].values())} findings")
    rows = re.findall(r"\| `([\w-]+)` \| (\d+) \|", table.partition("`fla-core`")[0])
    assert {rule: int(count) for rule, count in rows} == counts["findings"]


@pytest.mark.processes
def test_evidence_has_the_digits_of_the_type_and_what_a_parameter_decides():
    message = {(one.kernel, one.rule): one.evidence for name in ("rows", "sharing") for one in linted(name).findings}
    assert (
        "as bf16, so that every iteration loses what is below 1/256 of it"
        in message["half_sum_bad", "low-precision-sum"]
    )
    assert "loses what is below 1/2048 of it" in message["rounded_each_turn_bad", "low-precision-sum"]
    assert "WIDTH decides a block's extent" in message["not_constant_bad", "missing-constexpr"]
    turns = message["not_constant_turns_bad", "missing-constexpr"]
    assert "TURNS decides how many times a loop is written out" in turns


@pytest.mark.processes
def test_a_key_without_the_only_extent_is_undecided():
    result = [one for one in linted("sharing").undecided if one.rule == "narrow-key"]
    assert [(one.kernel, one.why) for one in result] == [
        ("tuned_for_one_size", "n ends a tuned axis of the tile, and the key [] leaves it out; it may vary little")
    ]


@pytest.mark.processes
def test_sixty_kernels_are_tried_and_half_of_them_have_no_pitfall():
    kernels = [kernel for name in FILES for kernel, _ in linted(name).kernels]
    assert len(kernels) >= 60
    assert sum(kernel.endswith("_good") for kernel in kernels) >= 30


@pytest.mark.processes
def test_every_finding_says_what_users_see_what_decided_and_what_to_change():
    for name in FILES:
        for one in linted(name).findings:
            assert all((one.symptom, one.evidence, one.fix, one.kernel))
            assert Path(one.file).is_file()
            assert one.level in ("source", "ttir", "binary", "run")


KERNEL = """
import triton
import triton.language as tl


@triton.jit
def copy(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + at, mask=at < n){comment}
    tl.store(y + at, v)
{rest}
"""


def written(folder: Path, comment: str = "", rest: str = "") -> Path:
    path = folder / "copies.py"
    path.write_text(KERNEL.format(comment=comment, rest=rest))
    return path


@pytest.mark.processes
def test_a_file_is_not_run_only_what_its_kernels_need(tmp_path):
    path = written(tmp_path, rest="raise SystemExit('this script launches kernels when it is imported')")
    assert [one.rule for one in lint(path).findings] == ["missing-mask"]


@pytest.mark.processes
def test_what_a_kernel_needs_and_cannot_have_leaves_it_undecided_with_the_reason(tmp_path):
    path = tmp_path / "needs.py"
    kernel = KERNEL.format(comment="", rest="").replace("y + at, v)", "y + at, v * WIDTH, mask=at < n)")
    path.write_text(kernel.replace("@triton.jit", "from absent_package import WIDTH\n\n@triton.jit"))
    report = lint(path)
    assert not report.findings
    assert {one.kernel for one in report.undecided} == {"copy"}


def needing(folder: Path, name: str, constant: str) -> Path:
    """A file whose kernel has a pitfall, beside one that needs a constant."""
    path = folder / f"{name}.py"
    pitfall = KERNEL.format(comment="", rest="").replace("def copy", f"def copy_{name}")
    needs = pitfall.partition("@triton.jit")[2].replace("(0, B)", "(0, B) + C").replace("def copy", "def needs")
    path.write_text(f"{constant}\n{pitfall}\n\n@triton.jit{needs}")
    return path


ENDING = {
    "exits": ("import sys\nC = sys.exit(3)", "line 2 fails: SystemExit: 3"),
    "ends": ("import os\nC = os._exit(9)", "line 2 fails: SystemExit: 9"),
    "kills": ("import os\nC = os.kill(os.getpid(), 9)", "was killed by SIGKILL"),
    "interrupts": ("def f(): raise KeyboardInterrupt\nC = f()", "line 2 fails: its process"),
    "forks": ("import os\nC = os.fork()", "front end refuses"),
    "closes": ("import os\nC = os.closerange(3, 99)", "during its line 2"),
    # It holds Python's lock, as a number without an end does, and takes no CPU from other tests.
    "counts": ("import ctypes\nC = ctypes.PyDLL(None).sleep(999)", "did not end within"),
    "fills": ("C = 'a' * (5 << 30)", "line 1 fails: MemoryError"),
    "import": ("from leaves import C", "line 1 fails"),
}


@pytest.mark.processes
@pytest.mark.parametrize("name", ENDING)
def test_a_constant_of_a_file_ends_and_hangs_no_lint(tmp_path, monkeypatch, name):
    constant, why = ENDING[name]
    monkeypatch.setattr(apart, "LIMIT_S", 8.0)
    (tmp_path / "leaves.py").write_text("import os\n\ndef __getattr__(name):\n    os._exit(5)\n\nC = os._exit(4)\n")
    report = lint(needing(tmp_path, "one", constant), rules=["missing-mask"])
    assert [(one.rule, one.kernel) for one in report.findings] == [("missing-mask", "copy_one")]
    assert [one.kernel for one in report.undecided] == ["needs_one"]
    assert why in report.undecided[0].why


DEEP = {
    "sum": "C = 1" + " + 1" * 5000,
    "nots": "C = " + "not " * 20_000 + "1",
    "brackets": f"C = {'(' * 5000}{')' * 5000}",
}


@pytest.mark.processes
def test_a_folder_is_read_past_every_file_that_cannot_be(cli, tmp_path):
    needing(tmp_path, "first", "C = 0")
    needing(tmp_path, "zlast", "C = 0")
    for name, text in {**DEEP, "syntax": "def f(:", "nul": "\0", "unknown": "# coding: nonsense"}.items():
        (tmp_path / f"{name}.py").write_text(f"{text}\nimport triton\n")
    (tmp_path / "utf16.py").write_text("import triton\n", "utf-16")
    (tmp_path / "dangling.py").symlink_to("nowhere.py")
    os.mkfifo(tmp_path / "fifo.py")
    (tmp_path / "folder.py").mkdir()
    unread = {*DEEP, "syntax", "nul", "unknown", "utf16", "dangling", "fifo"}
    for targets in ([tmp_path], sorted(tmp_path.glob("*.py"))):
        ran = cli("lint", *targets, "--rule", "missing-mask", "--json")
        message = json.loads(ran.out)
        assert ran.code == 5
        assert [one["kernel"] for one in message["findings"]] == ["copy_first", "copy_zlast"]
        assert {Path(file).stem for file in message["unread"]} == unread
    ran = cli("lint", tmp_path, "--rule", "missing-mask")
    assert ran.code == 5
    assert f"{len(unread)} files not read" in ran.out
    assert all(f"{name}.py is not read" in ran.err for name in unread)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("encoding", "head"),
    [
        ("utf-8-sig", ""),
        ("latin-1", "# -*- coding: latin-1 -*-\n"),
        ("shift-jis", "# vim: set fileencoding=shift-jis :\n"),
    ],
)
def test_a_file_is_read_in_the_encoding_that_it_names(tmp_path, encoding, head):
    comment = "  # triton-ops: ignore[missing-mask] " + {"latin-1": "größer", "shift-jis": "漢字"}.get(encoding, "é漢")
    path = written(tmp_path)
    text = f"{head}{path.read_text()}"
    path.write_text(text, encoding)
    assert [one.rule for one in lint(path).findings] == ["missing-mask"]
    path.write_text(text.replace("y + at, v)", f"y + at, v){comment}"), encoding)
    report = lint(path)
    assert report.findings == ()
    assert [reason for _, reason in report.suppressed] == [comment.rpartition(" ")[2]]


@pytest.mark.processes
def test_a_comment_with_a_reason_answers_a_finding(tmp_path):
    path = written(tmp_path)
    path.write_text(
        path.read_text().replace("    tl.store", "    # triton-ops: ignore[missing-mask] callers pad\n    tl.store")
    )
    report = lint(path)
    assert not report.findings
    assert [reason for _, reason in report.suppressed] == ["callers pad"]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("comment", "what"),
    [
        ("  # triton-ops: ignore[missing-mask]", "no reason"),
        ("  # triton-ops: ignore[missing-masks] callers pad", "no rule"),
        ("  # triton-ops: ignore callers pad", "no rule"),
    ],
)
def test_a_comment_without_a_rule_or_a_reason_is_a_finding_and_answers_none(tmp_path, comment, what):
    result = lint(written(tmp_path, comment)).findings
    assert [one.rule for one in result] == ["bad-suppression", "missing-mask"]
    assert what in result[0].evidence


@pytest.mark.processes
def test_a_comment_inside_of_a_text_is_none(tmp_path):
    assert len(lint(written(tmp_path, rest='TEXT = "# triton-ops: ignore[missing-mask]"')).findings) == 1


@pytest.mark.processes
def test_json_has_the_documented_fields_and_findings_make_the_exit_code(tmp_path, capsys):
    refused = "@triton.jit\ndef refused(x, n):\n    tl.store(x, tl.nothing(n))\n"
    assert main(["lint", str(written(tmp_path, rest=refused)), "--json"]) == 5
    message = json.loads(capsys.readouterr().out)
    assert list(message) == ["kind", "schema_version", "findings", "undecided", "unread"]
    fields = ["rule", "kernel", "file", "line", "symptom", "evidence", "fix", "level"]
    assert [list(one) for one in message["findings"]] == [fields]
    assert {tuple(one) for one in message["undecided"]} == {("rule", "kernel", "why", "file")}
    assert {one["kernel"] for one in message["undecided"]} == {"refused"}
    assert message["findings"][0]["line"] == 10


@pytest.mark.processes
def test_a_file_without_findings_ends_with_0_and_says_how_many_kernels_it_has(tmp_path, capsys):
    path = written(tmp_path)
    path.write_text(path.read_text().replace("y + at, v)", "y + at, v, mask=at < n)"))
    assert main(["lint", f"{path}:copy"]) == 0
    assert "0 findings in 1 kernel, 0 undecided" in capsys.readouterr().out


@pytest.mark.processes
def test_sarif_has_what_its_schema_requires(tmp_path):
    path = written(tmp_path)
    out = tmp_path / "out.sarif"
    assert main(["lint", str(path), "--sarif", str(out)]) == 5
    log = json.loads(out.read_text())
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    assert run["tool"]["driver"]["name"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(set(rules)) == len(rules)
    for result in run["results"]:
        assert result["message"]["text"]
        assert result["ruleId"] in rules
        assert result["level"] in ("none", "note", "warning", "error")
        place = result["locations"][0]["physicalLocation"]
        assert place["region"]["startLine"] >= 1
        assert place["artifactLocation"]["uri"]
    assert all(isinstance(one["executionSuccessful"], bool) for one in run["invocations"])


@pytest.mark.processes
def test_what_a_comment_answers_is_in_sarif_as_suppressed(tmp_path):
    path = written(tmp_path)
    path.write_text(
        path.read_text().replace("y + at, v)", "y + at, v)  # triton-ops: ignore[missing-mask] callers pad")
    )
    (result,) = as_sarif(lint(path), "0")["runs"][0]["results"]
    assert result["suppressions"] == [{"kind": "inSource", "justification": "callers pad"}]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nowhere.py", "there is no file nowhere.py"),
        ("no_such_module_at_all:kernel", "there is no module no_such_module_at_all"),
        ("{folder}/copies.py:other", "defines no other"),
        ("{folder}/broken.py", "broken.py, line 1 does not parse"),
        ("{folder}/binary.py", "cannot be read"),
    ],
)
def test_a_target_that_is_not_there_or_does_not_parse_is_an_error_that_says_so(tmp_path, target, said):
    written(tmp_path)
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe triton")
    with pytest.raises(TargetError, match=said):
        lint(target.format(folder=tmp_path))


@pytest.mark.processes
def test_a_kernel_whose_module_asks_for_the_interpreter_is_read_from_its_file(tmp_path, monkeypatch):
    path = written(tmp_path)
    path.write_text("import os\nos.environ['TRITON_INTERPRET'] = '1'\n" + path.read_text())
    importlib.import_module("triton.language")  # whose functions stay as they are now made, for all tests of a process
    monkeypatch.setenv("TRITON_INTERPRET", "0")  # is put back after the module has set it
    monkeypatch.syspath_prepend(str(tmp_path))
    kernel = importlib.import_module("copies").copy
    assert type(kernel).__name__ == "InterpretedFunction"
    assert [(one.rule, one.line) for one in lint(kernel).findings] == [("missing-mask", 12)]


def test_an_unknown_rule_is_an_error_that_lists_the_known_ones(tmp_path):
    with pytest.raises(TargetError, match=r"no rule spelling.*missing-mask"):
        lint(written(tmp_path), rules=["spelling"])


@pytest.mark.processes
def test_an_object_is_linted_as_its_file_is():
    assert lint("triton_ops_kernels.softmax.kernel").findings == ()
    with pytest.raises(TargetError, match="no Triton kernel"):
        lint(42)


@pytest.mark.processes
def test_a_kernel_that_does_not_compile_is_undecided_and_says_what_the_compiler_said(tmp_path):
    path = tmp_path / "fails.py"
    path.write_text(
        KERNEL.format(comment="", rest="").replace("tl.store(y + at, v)", "tl.store(y + at, tl.nothing(v))")
    )
    report = lint(path)
    assert not report.findings
    assert any("refuses it" in one.why for one in report.undecided)


@pytest.mark.processes
def test_the_fixture_passes_without_findings_and_fails_with_each_of_them_in_words(tmp_path, lint_kernels):
    path = written(tmp_path)
    with pytest.raises(pytest.fail.Exception, match=r"copies.py:10: missing-mask in copy"):
        lint_kernels(path)
    assert lint_kernels(path, rules=["wrong-mask"]).kernels == (("copy", str(path)),)


@pytest.mark.processes
def test_the_same_kernel_spills_on_one_gpu_and_not_on_another():
    large = FOLDER / "products.py"
    result = lint(f"{large}:large_tile_bad", rules=["register-spill"], gpu="NVIDIA B200")
    assert not result.findings  # its products are added up in tensor memory
    with pytest.raises(DeviceError, match="not known"):
        lint(large, gpu="NVIDIA Z9000")
