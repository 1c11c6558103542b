"""How the lint goes through files: as they are read, several at a time, ended, and for other programs."""

import json
import linecache
import math
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from triton_ops.device import Target
from triton_ops.exceptions import TargetError
from triton_ops.space import ConfigSpace, UnlistedSpace
from triton_ops.tuner.expectation import Expectation
from triton_ops_lint.command_lint import as_sarif
from triton_ops_lint.engine import lint, readings_of
from triton_ops_lint.findings import Undecided
from triton_ops_lint.rules import compiled_costs

pytestmark = pytest.mark.triton
PROJECT = Path(__file__).parents[3]
HEAD = "import triton\nimport triton.language as tl\n"
KERNEL = """

@triton.jit
def {name}(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + at, mask=at < n)
    tl.store(y + at, {value}, mask=at {mask} n)
"""


def written(path: Path, *, head: str = "", mask: str = "<=", value: str = "v", tail: str = "") -> Path:
    path.write_text(f"{HEAD}{head}{KERNEL.format(name=path.stem, mask=mask, value=value)}{tail}")
    return path


@pytest.fixture
def files(tmp_path):
    """Three files, of which the second has no finding, and one that is no Python."""
    for name, mask in (("first", "<="), ("second", "<"), ("third", "<=")):
        written(tmp_path / f"{name}.py", mask=mask)
    (tmp_path / "wrong.py").write_text("def f(:\n")
    return tmp_path


ONE_RULE = ("--rule", "wrong-mask")


@pytest.mark.processes
def test_any_number_of_jobs_says_the_same_in_the_same_order(cli, files, monkeypatch):
    monkeypatch.chdir(files)
    several = [cli("lint", ".", *ONE_RULE, "--jobs", jobs) for jobs in (1, 3)]
    assert several[0] == several[1]
    assert re.findall(r"^(\w+)\.py:\d+: wrong-mask", several[0].out, re.MULTILINE) == ["first", "third"]
    assert several[0].code == 5


@pytest.mark.processes
def test_a_line_of_json_is_written_for_each_file(cli, files):
    ran = cli("lint", files, *ONE_RULE, "--jsonl")
    lines = [json.loads(line) for line in ran.out.splitlines()]
    assert [Path(one["file"]).stem for one in lines] == ["first", "second", "third", "wrong"]
    assert [len(one["findings"]) for one in lines] == [1, 0, 1, 0]
    assert list(lines[3]["unread"]) == [str(files / "wrong.py")]
    assert "2 findings in 3 kernels, 0 undecided, 1 file not read" in ran.err


@pytest.mark.processes
def test_strict_counts_what_is_undecided(cli, tmp_path):
    path = written(tmp_path / "needs.py", value="v * absent", mask="<")
    assert cli("lint", path).code == 0
    assert cli("lint", path, "--strict").code == 5


@pytest.mark.processes
def test_the_exit_code_says_that_a_file_was_not_read_which_is_told_once(cli, tmp_path):
    written(tmp_path / "good.py", mask="<")
    (tmp_path / "bad.py").write_text("def f(:\n")
    rule = ("--rule", "wrong-mask")
    for targets in ([tmp_path], [tmp_path / "good.py", tmp_path / "bad.py"], [tmp_path / "bad.py"]):
        ran = cli("lint", *targets, *rule)
        assert (ran.code, ran.err.count("does not parse")) == (2, 1)
    ran = cli("lint", tmp_path / "nowhere.py")
    assert (ran.code, ran.err.count("there is no file"), "hint" in ran.err) == (2, 1, True)
    assert cli("lint", tmp_path / "good.py", *rule).code == 0


@pytest.mark.processes
def test_a_target_without_a_kernel_is_said_and_has_its_own_exit_code(cli, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("words\n")
    (tmp_path / "plain.py").write_text("import triton\n")
    for target in (tmp_path / "empty", tmp_path / "notes.txt", tmp_path / "plain.py", tmp_path):
        ran = cli("lint", target)
        assert (ran.code, "nothing was read" in ran.err) == (7, True)
        assert cli("lint", target, "--pass-without-kernels").code == 0


@pytest.mark.processes
def test_kernels_of_one_name_in_two_files_are_two(cli, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        written(tmp_path / folder / "same.py", value="v * absent", mask="<")
    ran = cli("lint", tmp_path, *ONE_RULE)
    assert "0 findings in 2 kernels, 2 undecided" in ran.out
    assert all(f"{folder}/same.py: undecided in same: wrong-mask" in ran.err for folder in ("a", "b"))


@pytest.mark.processes
def test_a_package_is_read_in_place_of_a_module_of_its_name(tmp_path):
    (tmp_path / "sizes").mkdir()
    (tmp_path / "sizes" / "__init__.py").write_text("W = 2\n")
    (tmp_path / "sizes.py").write_text("W = sys.exit()\n")
    path = written(tmp_path / "one.py", head="from sizes import W as OWN\nW = tl.constexpr(OWN)\n", value="v * W")
    assert len(lint(path, rules=["wrong-mask"]).findings) == 1


@pytest.mark.processes
def test_a_file_changes_nothing_for_the_next_one(tmp_path):
    patch = "tl.cdiv = lambda *_: 1 / 0\nC = setattr(tl, 'arange', None)\n"
    written(tmp_path / "changes.py", head=patch, value="v * C")
    written(tmp_path / "next.py")
    report = lint(tmp_path, rules=["wrong-mask"], jobs=1)
    assert [one.kernel for one in report.findings] == ["next"]


TARGETS = """

def grid(values):
    return (triton.cdiv(values["n"], values["B"]),)


def tensors(n: int = 1000):
    return {"x": TensorSpec((n,), "float32"), "y": TensorSpec((n,), "float32", fill="empty"), "n": n}


kernel = TritonKernel(targets, grid, outputs=("y",))
of_operation = Operation("of_operation", kernel, {"B": [64]}, tensors)
LISTED = [triton.Config({"B": 64}), triton.Config({"B": 128})]
of_triton = triton.autotune(LISTED, key=["n"])(targets)
of_ours = autotune(configs=LISTED, key=["n"])(targets)
"""


def test_a_kernel_of_a_notebooks_cell_is_read_as_it_was_typed(tmp_path, monkeypatch):
    cell, text = str(tmp_path / "ipykernel_1" / "7.py"), f"{HEAD}{KERNEL.format(name='k', mask='<=', value='v')}"
    monkeypatch.setitem(linecache.cache, cell, (len(text), None, text.splitlines(keepends=True), cell))
    names = {}
    exec(compile(text, cell, "exec"), names)
    (finding,) = lint(names["k"], rules=["wrong-mask"]).findings
    assert (finding.file, finding.line, finding.kernel) == (cell, text.count("\n"), "k")
    monkeypatch.delitem(linecache.cache, cell)
    with pytest.raises(TargetError, match="cannot be read"):
        lint(names["k"], rules=["wrong-mask"])


@pytest.mark.processes
def test_a_kernel_with_or_without_an_autotuner_and_an_operation_are_targets(cli, tmp_path):
    head = "from triton_ops import Operation, TensorSpec, TritonKernel, autotune\n"
    path = written(tmp_path / "targets.py", head=head, tail=TARGETS)
    for name in ("targets", "of_operation", "of_triton", "of_ours"):
        ran = cli("lint", f"{path}:{name}", *ONE_RULE)
        assert ran.code == 5, ran.err
        assert "targets.py:10: wrong-mask" in ran.out
    assert cli("lint", f"{path}:grid").code == 2


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_ended_has_told_what_is_done_and_says_what_is_not_read(tmp_path, number):
    written(tmp_path / "a.py")
    written(tmp_path / "b.py", head="import time\nW = tl.constexpr(time.sleep(600))\n", value="v * W")
    words = [sys.executable, "-m", "triton_ops", "lint", str(tmp_path), "--jsonl", "--jobs", "1", *ONE_RULE]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        first = json.loads(process.stdout.readline())
        process.send_signal(number)
        rest, errors = process.communicate()
    assert len(first["findings"]) == 1
    *_, last = map(json.loads, rest.splitlines())
    assert last["unread"] == {str(tmp_path / "b.py"): "the run was ended before"}
    assert process.returncode == (130 if number == signal.SIGINT else -signal.SIGTERM)
    assert "1 finding in 1 kernel, 0 undecided, 1 file not read" in errors


@pytest.mark.processes
def test_sarif_has_addresses_below_the_folder_and_fingerprints_that_lines_above_do_not_change(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path / "one more.py".replace(" ", "_"))
    (result,) = as_sarif(lint(path, rules=["wrong-mask"]), "0.1")["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "one_more.py", "uriBaseId": "%SRCROOT%"}
    path.write_text("# a line above\n" + path.read_text())
    (moved,) = as_sarif(lint(path, rules=["wrong-mask"]), "0.1")["runs"][0]["results"]
    assert moved["locations"][0]["physicalLocation"]["region"]["startLine"] == place["region"]["startLine"] + 1
    assert moved["partialFingerprints"] == result["partialFingerprints"]


@pytest.mark.processes
def test_a_file_of_any_name_is_named_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path / "k.py").rename(tmp_path / "C:\\größe 20%.py")
    report = lint(path, rules=["wrong-mask"])
    assert [one.file for one in report.findings] == [str(path)]
    bytes_name = replace(report.findings[0], file=str(tmp_path / os.fsdecode(b"\xff.py")))
    results = as_sarif(replace(report, findings=(*report.findings, bytes_name)), "0.1")["runs"][0]["results"]
    uris = [one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for one in results]
    assert uris == ["C%3A%5Cgr%C3%B6%C3%9Fe%2020%25.py", "%FF.py"]


@pytest.mark.processes
def test_a_file_that_ends_the_process_with_success_is_no_success(cli, tmp_path):
    path = written(tmp_path / "ends.py", head="import os\nW = os._exit(0)\n", value="v * W")
    (one,) = lint(path, rules=["wrong-mask"]).undecided
    assert "line 4 fails: SystemExit: 0" in one.why
    ran = cli("lint", "--run", path, *ONE_RULE)
    assert (ran.code, ran.out) == (2, "")
    assert f"{path} ends every process that imports it, by os._exit(0)" in ran.err


@pytest.mark.processes
def test_sarif_says_what_could_not_be_read(files):
    (run,) = as_sarif(lint(files, rules=["wrong-mask"]), "0.1")["runs"]
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False
    (note,) = [one for one in invocation["toolExecutionNotifications"] if one["level"] == "error"]
    assert note["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].endswith("/wrong.py")
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]][run["results"][0]["ruleIndex"]] == "wrong-mask"
    assert not any("helpUri" in rule for rule in run["tool"]["driver"]["rules"])  # the project has no address


@pytest.mark.processes
def test_the_entry_for_pre_commit_lints_the_files_that_it_is_given(cli, files):
    hook = (PROJECT / ".pre-commit-hooks.yaml").read_text()
    fields = dict(re.findall(r"^[- ] (\w+): (.*)$", hook, re.MULTILINE))
    program, *words = fields["entry"].split()
    assert (program, fields["types"], fields["require_serial"]) == ("triton-ops", "[python]", "true")
    assert cli(*words, *ONE_RULE, files / "first.py", files / "second.py").code == 5
    assert cli(*words, *ONE_RULE, files / "second.py").code == 0


SUM_OF_ROWS = """
import torch


@triton.autotune([triton.Config(config, num_warps=warps) for config, warps in {configs}], key=["n"])
@triton.jit
def row_sum(x, out, n, BLOCK: tl.constexpr):
    row, total = tl.program_id(0), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * n + at, mask=at < n, other=0.0)
    tl.store(out + row, tl.sum(total, 0))


def sums(x):
    out = torch.empty(x.shape[0], device=x.device)
    row_sum[(x.shape[0],)](x, out, x.shape[1])
    return out
"""


@pytest.mark.processes
def test_what_a_list_misses_at_a_launch_is_said_by_the_model(cli, tmp_path):
    configs = [({"BLOCK": 32}, 1), ({"BLOCK": 64}, 1)]
    asked = "--shape", "4096x8192", "--rule", "short-list", "--gpu", "H200", "--json"
    path = tmp_path / "sums.py"
    path.write_text(HEAD + SUM_OF_ROWS.format(configs=configs))
    assert cli("lint", path, *asked[2:]).code == 0  # no launch is known
    pruning = 'key=["n"], prune_configs_by={"early_config_prune": lambda configs, named, **others: configs[:1]}'
    path.write_text(HEAD + SUM_OF_ROWS.format(configs=configs).replace('key=["n"]', pruning))
    assert cli("lint", f"{path}:row_sum@sums", *asked).code == 0  # what is not taken may be in the list
    path.write_text(HEAD + SUM_OF_ROWS.format(configs=configs))
    ran = cli("lint", f"{path}:row_sum@sums", *asked)
    (finding,) = json.loads(ran.out)["findings"]
    assert (ran.code, finding["level"], finding["kernel"]) == (5, "model", "row_sum")
    assert re.match(
        r"this list misses BLOCK=\d+.*: a model of NVIDIA H200 expects .* and \S+ ms of the fastest of the list$",
        finding["evidence"],
    )
    pick = re.search(r"expects \S+ ms of \(BLOCK=(\d+) num_warps=(\d+)", finding["evidence"])
    assert pick is not None, finding
    configs.append(({"BLOCK": int(pick[1])}, int(pick[2])))
    path.write_text(HEAD + SUM_OF_ROWS.format(configs=configs))
    assert cli("lint", f"{path}:row_sum@sums", *asked).code == 0


@pytest.mark.parametrize(("gain", "said"), [(0.0, []), (math.nan, ["the model cannot"]), (0.04, []), (0.5, [None])])
def test_a_pick_that_ties_with_the_list_is_no_open_question(monkeypatch, gain, said):
    seeds = {"BLOCK": 64, "num_warps": 4}, {"BLOCK": 128, "num_warps": 4}
    expectation = Expectation(ConfigSpace.from_configs(seeds), "cannot", gain)
    tune = SimpleNamespace(expectation_of_list=lambda *_: expectation)
    monkeypatch.setattr(compiled_costs, "RequestedTune", tune)
    space = UnlistedSpace.around(ConfigSpace({"BLOCK": [64, 128], "num_warps": [4]}), seeds[:1], ["BLOCK"])
    kernel = SimpleNamespace(operation=SimpleNamespace(space=space), gpu="H100", target=Target.named("H100"), line=1)
    statements = list(compiled_costs.short_list.decide(kernel))
    assert [one if isinstance(one, str) else None for one in statements] == said


OF_ANOTHER_LIBRARY = """
class Launcher:
    def __init__(self, fn):
        self.fn = fn


@Launcher
@triton.jit
def copied(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at))
"""


@pytest.mark.processes
def test_a_kernel_inside_of_a_decorator_of_another_library_is_read(cli, tmp_path):
    path = tmp_path / "launched.py"
    path.write_text(HEAD + OF_ANOTHER_LIBRARY)
    undecided = json.loads(cli("lint", path, "--rule", "missing-mask", "--json").out)["undecided"]
    assert [one["kernel"] for one in undecided] == ["copied"]


STAGED = """
import triton, triton.language as tl

{tune}
@triton.jit
def staged(x, y, n, B: tl.constexpr, STAGES: tl.constexpr{default}):
    total = tl.zeros((B,), tl.float32)
    for at in tl.range(0, n, B, num_stages={stages}):
        total += tl.load(x + at + tl.arange(0, B), mask=at + tl.arange(0, B) < n, other=0.0)
    tl.store(y + tl.arange(0, B), total)
{launch}
"""
TUNE = '@triton.autotune([triton.Config({"B": 512, "STAGES": 2}), triton.Config({"B": 512, "STAGES": 300})], key=[])'
LAUNCH = "\ndef launch(x, y, n):\n    staged[(1,)](x, y, n, B=512, STAGES={value})\n"


@pytest.mark.parametrize(
    ("parts", "refused"),
    [
        ({"stages": "300"}, True),
        ({"tune": TUNE}, True),
        ({"default": " = 300"}, True),
        ({"launch": LAUNCH.format(value=300)}, True),
        ({"launch": LAUNCH.format(value=3)}, False),
        ({"launch": LAUNCH.format(value="n // 8")}, False),
    ],
    ids=["text", "config", "default", "launch", "few", "not seen"],
)
def test_stages_of_a_loop_are_bounded_as_those_of_a_launch_are(tmp_path, parts, refused):
    path = tmp_path / "staged.py"
    path.write_text(STAGED.format(**{"tune": "", "default": "", "stages": "STAGES", "launch": "", **parts}))
    (reading,), _, _ = readings_of(str(path))
    whys = [one.why for one in compiled_costs.lost_occupancy.statements(reading) if isinstance(one, Undecided)]
    assert ["num_stages is 300;" in why for why in whys] == [True] * refused


def test_a_list_with_options_of_another_vendor_is_undecided(tmp_path):
    tune = '@triton.autotune([triton.Config({"B": 512, "STAGES": 2, "waves_per_eu": 2})], key=[])'
    path = tmp_path / "staged.py"
    path.write_text(STAGED.format(tune=tune, default="", stages="STAGES", launch=""))
    refused = "B=512 STAGES=2 waves_per_eu=2 num_warps=4 num_stages=3 is refused: Triton has no waves_per_eu for sm_90"
    (reading,), _, _ = readings_of(str(path))
    for arch, whys in (("sm_90", [refused]), ("gfx942", [])):
        one = replace(reading, gpu=arch)
        assert [each.why for each in compiled_costs.lost_occupancy.statements(one)] == whys


@pytest.mark.processes
@pytest.mark.parametrize("padded", ["", "    if n % 64:\n        x = torch.nn.functional.pad(x, (0, 64 - n % 64))\n"])
def test_rows_that_the_file_pads_may_be_whole(tmp_path, padded):
    path = tmp_path / "padded.py"
    path.write_text(
        f"{HEAD}import torch\n\n@triton.jit\ndef copied(x, y, n, B: tl.constexpr):\n"
        "    at = tl.program_id(0) * B + tl.arange(0, B)\n    tl.store(y + at, tl.load(x + at))\n\n"
        "def launch(x, y, n):\n    copied[(triton.cdiv(n, 64),)](x, y, n, B=64)\n\n"
        f"def copy(x, n):\n{padded}    launch(x, torch.empty_like(x), n)\n"
    )
    assert bool(lint(path).findings) is not bool(padded)


TIMES = """
@triton.jit
def product(a, b, c, M, N, K, am, ak, bk, bn, cm, cn, B: tl.constexpr):
    m, n = (tl.program_id(0) * B + tl.arange(0, B)) % M, (tl.program_id(1) * B + tl.arange(0, B)) % N
    k, total = tl.arange(0, B), tl.zeros((B, B), tl.float32)
    for first in range(0, K, B):
        left = tl.load(a + m[:, None] * am + (first + k)[None, :] * ak, mask=first + k[None, :] < K, other=0.0)
        right = tl.load(b + (first + k)[:, None] * bk + n[None, :] * bn, mask=first + k[:, None] < K, other=0.0)
        total = tl.dot(left, right, total)
    tl.store(c + m[:, None] * cm + n[None, :] * cn, total)
"""


def test_one_stride_of_a_tensor_is_taken_for_1_where_an_index_is_a_remainder(tmp_path):
    path = tmp_path / "product.py"
    path.write_text(HEAD + TIMES)
    (reading,), _, _ = readings_of(str(path))
    assert compiled_costs._contiguous(reading.variants[0]).guess.ones == {"ak", "bn", "cn"}


@pytest.mark.processes
def test_a_folder_is_read_by_any_path_and_only_what_is_hidden_below_it_is_left_out(cli, tmp_path, monkeypatch):
    for folder in ("here", ".hidden", ".hidden/.deeper"):
        (tmp_path / folder).mkdir()
        written(tmp_path / folder / "one.py", mask="<=")
    monkeypatch.chdir(tmp_path / "here")
    for folder in ("../here", "../.hidden", ".", str(tmp_path / ".hidden")):
        assert "1 finding in 1 kernel," in cli("lint", folder, *ONE_RULE).out
