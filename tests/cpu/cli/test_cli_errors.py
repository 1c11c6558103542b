"""Bad input: one line on stderr with the next step, the documented exit code, no data, and nothing run or stored."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.records import record
from triton_ops.exceptions import CacheError
from triton_ops.records.store import open_store
from triton_ops.settings import cache_folder

TARGET = """
from functools import partial
from pathlib import Path
from triton_ops import ConfigSpace, TensorSpec, Work, operation

HERE = Path(__file__).parent
(HERE / "imported").touch()
NUMBER = 3


def ran():
    with (HERE / "ran").open("a") as log:
        log.write("x")


def plain(*, a=1):
    ran()


def two(x, y, *, a=1):
    ran()


def by_position(x, /, *, a=1):
    ran()


def broken(*, a):
    raise ValueError(f"no good: {a}")


def leaves(*, a):
    raise SystemExit(3)


class Thing:
    pass


def arguments(n: int = 8, dtype: str = "float32"):
    return {"x": TensorSpec((n, 64 // (n - 8) if n == 8 + 64 else n), dtype), "share": 100 // (n - 9)}


def picky(**changes):
    facts = {"space": {"a": [1, 2]}, "arguments": arguments, "dtypes": ("float32", "float16"), "device": "cpu"}

    @operation(**{**facts, **changes})
    def picky(x, share, *, a):
        ran()

    return picky


def refuse(*_):
    raise KeyError("refused")


op = picky()
bad_space = picky(space=refuse)
bad_work = picky(work=refuse)
bad_reference = picky(reference=lambda x, share: refuse())
"""
SPACE = ["--space", "a=1,2"]
T = "<target>"  # stands for the target file's path
HUGE = f"{2**31}x{2**31}"


# words, exit code, what the message must say
BEFORE_IMPORT = [
    ([f"{T}:plain", *SPACE, "--tolerance", "-1"], 2, "the tolerance's relative is -1.0; it must be a finite number"),
    (
        [f"{T}:plain", *SPACE, "--effort", "fast"],
        2,
        "effort is 'fast'; allowed are expected, race, quick, full, exhaustive",
    ),
    (
        [f"{T}:plain", *SPACE, "--search", "magic"],
        2,
        "there is no search 'magic'; known are auto, ranked, random",
    ),
    ([f"{T}:plain", *SPACE, "--search", "Locl"], 2, "there is no search 'Locl'; close are local"),
    ([f"{T}:plain", *SPACE, "--budget-s", "10m"], 2, "'--budget-s': '10m' is not a number; in seconds 600"),
    ([f"{T}:plain", *SPACE, "--budget-s", "1.5 h"], 2, "'--budget-s': '1.5 h' is not a number; in seconds 5400"),
    ([f"{T}:plain", *SPACE, "--budget-s", "soon"], 2, "'--budget-s': 'soon' is not a number (hint"),
    ([f"{T}:plain", "--space", "a=64..512"], 2, "(hint: for powers of two --space a=64,128,256,512)"),
    ([f"{T}:plain", "--space", "a=0-4"], 2, "(hint: for powers of two --space a=1,2,4)"),
    ([f"{T}:plain", "--space", "a=3-24"], 2, "(hint: for powers of two --space a=4,8,16)"),
    ([f"{T}:plain", "--space", "a=5-7"], 2, "(hint: such as --space a=5,7)"),
    ([f"{T}:plain", "--space", "a=1-4"], 2, "--space 'a=1-4' is a range; each value must be written out"),
    ([f"{T}:plain", *SPACE, "--trials", "0"], 2, "the limit of trials is 0; it must be a positive whole number"),
    ([f"{T}:plain", *SPACE, "--trials", "few"], 2, "'--trials': 'few' is not a whole number"),
    ([f"{T}:plain", *SPACE, "--seed", "-1"], 2, "the seed is -1; it must be a whole number of 0 or more"),
    ([f"{T}:plain", *SPACE, "--budget-s", "-1"], 2, "the limit of seconds is -1.0; it must be"),
    ([f"{T}:plain", *SPACE, "--budget-s", "nan"], 2, "the limit of seconds is nan; it must be"),
    ([f"{T}:plain", *SPACE, "--seed", "x"], 2, "--seed"),
    ([f"{T}:plain", *SPACE, "--device", "tpu"], 3, "device 'tpu' is not known"),
    ([f"{T}:plain", *SPACE, "--shape", "axb"], 2, "--shape 'axb' is not made of whole numbers"),
    ([f"{T}:plain", *SPACE, "--shape", "0x4x4"], 2, "--shape '0x4x4' is not made of whole numbers of 1 or more"),
    ([f"{T}:plain", *SPACE, "--shape", "-4"], 2, "--shape '-4' is not made of"),
    ([f"{T}:plain", *SPACE, "--shape", ""], 2, "--shape '' is not made of"),
    ([f"{T}:two", *SPACE, "--shape", "4,4", "--dtype", "fp13"], 2, "dtype 'fp13' is not known; known are float64"),
    ([f"{T}:plain", "--space", "a="], 2, "--space 'a=' is not NAME=value,value"),
    ([f"{T}:plain", "--space", "a"], 2, "--space 'a' is not NAME=value,value"),
    ([f"{T}:plain", "--space", "=1"], 2, "--space '=1' is not NAME=value,value"),
    ([f"{T}:plain", "--space", "a=1,,2"], 2, "--space 'a=1,,2' has an empty value"),
    ([f"{T}:plain", "--space", "a=1", "--space", "a=2"], 2, "--space names a twice"),
    ([f"{T}:plain", "--space", "no.json"], 2, "--space no.json cannot be read: No such file"),
    ([f"{T}:plain", "--space", "{"], 2, "cannot be read as JSON"),
    ([f"{T}:plain", "--space", '{"a": 1}'], 2, "is no object of lists"),
    ([f"{T}:plain", "--space", '{"a": ' + "[" * 50_000], 2, "cannot be read as JSON"),
    ([f"{T}:plain", "--space", '{"a": [1]}', *SPACE], 2, "a JSON --space stands alone"),
    ([f"{T}:plain", *SPACE, "--cache-dir", T], 4, "cannot be a cache folder: <target> is a file"),
    ([f"{T}:plain", *SPACE, "--cache-dir", f"{T}/a/b"], 4, "cannot be a cache folder: <target> is a file"),
    ([T, *SPACE], 2, "<target> names a file, but nothing in it"),
    ([f"{T}:", *SPACE], 2, "has nothing after the colon"),
    ([":plain", *SPACE], 2, "has nothing before the colon"),
    (["no_file.py:f", *SPACE], 2, "there is no file no_file.py"),
    (["no_module:f", *SPACE], 2, "there is no module no_module"),
    (["json.no_module:f", *SPACE], 2, "there is no module json.no_module"),
    ([], 2, "Missing argument 'TARGET'"),
    (["matmul", "--frob"], 2, "No such option: --frob"),
    (["matmul", "one", "two"], 2, "3 targets were given"),
]
AFTER_IMPORT = [
    ([f"{T}:plain", "--space", '{"a": ' + "[" * 500 + "]" * 500 + "}"], 2, "nested"),
    ([f"{T}:plain", "--space", '{"a": ["\\ud800"]}'], 2, "list whole characters"),
    (
        [f"{T}:zzz", *SPACE],
        2,
        "<target> has no 'zzz'; known are op, bad_space, bad_work, bad_reference, ran, plain",
    ),
    ([f"{T}:NUMBER", *SPACE], 2, "is a value of type int, neither an Operation nor a function"),
    ([f"{T}:Thing", *SPACE], 2, "is a class, neither an Operation nor a function"),
    ([f"{T}:plain"], 2, "is a plain function, so its space must be given"),
    ([f"{T}:plain", "--space", "b=1"], 2, "takes no keyword 'b'; it takes a"),
    ([f"{T}:plain", "--space", "a=1,1"], 2, "tunable 'a' lists 1 twice"),
    ([f"{T}:plain", "--space", "a=nan"], 2, "tunable 'a' has the value nan of type float"),
    ([f"{T}:plain", "--space", '{"a": []}'], 2, "tunable 'a' has no values"),
    ([f"{T}:plain", "--space", '{"a": [{}]}'], 2, "tunable 'a' has the value {} of type dict"),
    ([f"{T}:plain", *SPACE, "--shape", "4"], 2, "needs 0 arguments (none); --shape gives 1 (hint: leave --shape out"),
    ([f"{T}:two", *SPACE], 2, "needs 2 arguments (x, y); --shape gives 0"),
    ([f"{T}:two", *SPACE, "--shape", "4"], 2, "needs 2 arguments (x, y); --shape gives 1"),
    ([f"{T}:by_position", *SPACE, "--shape", "4"], 2, "takes x by position only"),
    ([f"{T}:plain", *SPACE, "--dtype", "fp16"], 2, "has no tensor argument to be of fp16"),
    ([f"{T}:op", "--shape", "8x8"], 2, "takes 0 to 1 extents, n; 8x8 has 2"),
    ([f"{T}:op", "--shape", "8,8"], 2, "takes one shape, n, not 2"),
    ([f"{T}:op", "--shape", "9"], 2, "the arguments of target:picky.<locals>.picky raised ZeroDivisionError"),
    ([f"{T}:op", "--dtype", "fp64"], 2, "does not take float64; it takes float32, float16"),
    ([f"{T}:op", "--space", "b=1"], 2, "has no tunable b; known are a"),
    ([f"{T}:plian", *SPACE], 2, "<target> has no 'plian'; close are plain"),
    ([f"{T}:op", "--device", "cpu:1"], 3, "device 'cpu:1' is not known"),
    ([f"{T}:op", "--check", "nowhere"], 2, "TARGET 'nowhere' has nothing before the colon"),
    ([f"{T}:op", "--check", f"{T}:T_NOT"], 2, "has no 'T_NOT'"),
    ([f"{T}:op", "--check", "math:pi"], 2, "--check is math:pi, which is 3.14159265"),
    ([f"{T}:bad_space"], 2, "the space of target:picky.<locals>.picky raised KeyError: 'refused'"),
    ([f"{T}:bad_work"], 2, "the work of target:picky.<locals>.picky raised KeyError"),
    (["time:sleep", *SPACE], 2, "time:sleep does not tell its parameters"),
]


@pytest.fixture(autouse=True)
def _no_namesake(monkeypatch):
    """Forget a `target.py` of another test, beside which a file of that name would be loaded under another one."""
    monkeypatch.delitem(sys.modules, "target", raising=False)


@pytest.fixture
def target(tmp_path, monkeypatch):
    """The target's path in a folder of its own; the cache lies beside it."""
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "target.py"
    path.write_text(TARGET)
    monkeypatch.chdir(tmp_path)
    return path


@pytest.fixture
def refused(cli, target):
    """Runs `tune`, and asserts that it refuses with this code and message, having run and stored nothing."""

    def check(words, code, message):
        ran = cli("tune", *(word.replace(T, str(target)) for word in words))
        assert_refused(ran, code, message.replace(T, str(target)))
        assert not (target.parent / "ran").exists(), "the function was called"
        assert not (target.parent / "cache").exists(), "something was stored"
        return ran

    return check


def assert_refused(ran, code, message):
    assert ran.out == ""
    assert ran.err.startswith("error: ")
    assert ran.err.count("\n") == 1, ran.err
    assert message in ran.err
    assert re.search(r" \(hint: .+\)$", ran.err.rstrip()), "there is no next step"
    assert ran.code == code, ran.err


@pytest.mark.parametrize(("words", "code", "message"), BEFORE_IMPORT)
def test_refused_before_the_target_is_imported(refused, target, words, code, message):
    refused(words, code, message)
    assert not (target.parent / "imported").exists()


@pytest.mark.parametrize(("words", "code", "message"), AFTER_IMPORT)
def test_refused_before_anything_runs(refused, words, code, message):
    assert refused(words, code, message).code == code


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "raise RuntimeError('boom')",
            ", line 1 cannot be imported: RuntimeError: boom (hint: import it in Python to try",
        ),
        ("def f(:", "cannot be imported: SyntaxError"),
        ("import sys; sys.exit(0)", "cannot be imported: SystemExit: 0"),
        ("import a_package_that_is_not_there", "needs a_package_that_is_not_there, which is not installed"),
        ("raise ValueError('two\\nlines')", "ValueError: two lines"),
    ],
)
def test_a_target_that_cannot_be_imported(cli, tmp_path, source, message):
    path = tmp_path / "cannot_be_imported.py"
    path.write_text(source)
    assert_refused(cli("tune", f"{path}:f", *SPACE), 2, message)


def test_a_file_of_a_package_imports_from_it_where_the_package_itself_cannot_be_imported(cli, tmp_path):
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    (inner / "__init__.py").touch()
    (inner.parent / "__init__.py").write_text("import a_package_that_is_not_there")
    (inner / "beside.py").write_text("from outer.inner.values import ONE\nTWO = 2 * ONE")
    (inner / "values.py").write_text("ONE = 1")
    (inner / "ops.py").write_text("from outer.inner.beside import TWO\nfrom .values import ONE\ndef f(n): return TWO")
    ran = cli("tune", f"{inner / 'ops.py'}:g", *SPACE)
    assert (ran.code, ran.out) == (2, "")
    note, error = ran.err.splitlines()
    assert note.endswith(
        "the __init__ of outer is left out, since it fails: No module named 'a_package_that_is_not_there'"
    )
    assert "has no 'g'; known are f" in error
    (inner / "ops.py").write_text("from .nowhere import nothing")
    assert "needs outer.inner.nowhere, which is not installed" in cli("tune", f"{inner / 'ops.py'}:f", *SPACE).err


@pytest.mark.triton
@pytest.mark.parametrize("name", ["kernel", "tuned", "wrapped"])
def test_a_triton_kernel_alone_is_not_enough(cli, tmp_path, name):
    pytest.importorskip("triton")
    path = tmp_path / "jitted.py"
    path.write_text(
        "import triton\nfrom triton_ops import TritonKernel\n"
        "@triton.jit\ndef kernel(x, N):\n    pass\n"
        "tuned = triton.autotune([triton.Config({})], key=[])(kernel)\n"
        "wrapped = TritonKernel(kernel, grid=lambda meta: (1,))\n"
    )
    ran = cli("tune", f"{path}:{name}", "--space", "N=1,2", "--shape", "4")
    lack = "is a Triton kernel, and neither its arguments nor its reference are known"
    if name != "wrapped":
        lack = "is a Triton kernel, and no function of its file launches it, so that its arguments and its grid are not"
        assert f"name the function that launches it, {path}:{name}@FUNCTION or {path}:{name}@PLACE:FUNCTION" in ran.err
        assert "or have its program note calls, with TRITON_OPS_ON_MISS=queue" in ran.err
    assert_refused(ran, 2, f"{path}:{name} {lack}")


def test_a_kernel_of_a_script_is_not_looked_for_in_this_program(cli):
    ran = cli("tune", "__main__:op", "--device", "cpu")
    assert ran.code == 2
    assert "op was defined in a script or notebook, which no other program can import" in ran.err


def test_arguments_that_do_not_fit_into_memory(cli, target):
    ran = cli("tune", f"{target}:two", *SPACE, "--shape", f"{HUGE},4", "--device", "cpu")
    assert_refused(ran, 2, "cannot be made on cpu: it takes")
    assert not (target.parent / "ran").exists()


def test_a_reference_that_raises(cli, target):
    ran = cli("tune", f"{target}:bad_reference")
    assert_refused(ran, 2, "the reference of target:picky.<locals>.picky 8 float32 raised KeyError: 'refused'")


@pytest.mark.parametrize(("name", "reason"), [("broken", "ValueError: no good: {}"), ("leaves", "SystemExit: 3")])
def test_a_target_that_always_raises(cli, target, name, reason):
    words = ["tune", f"{target}:{name}", "--space", "a=1,2,3,4,5", "--device", "cpu"]
    ran = cli(*words)
    assert_refused(ran, 1, f"none of 5 configs of target:{name} ran: (a=1) runtime: {reason.format(1)}; ")
    assert "; and 2 more" in ran.err
    loud = cli(*words, "-v")
    assert loud.code == 1
    lines = loud.err.splitlines()
    assert sorted(line for line in lines if line.startswith("(")) == [
        f"(a={a}) runtime: {reason.format(a)}" for a in range(1, 6)
    ]
    assert sum(line.strip() == "Traceback (most recent call last):" for line in lines) == 5


def test_v_shows_the_trace(cli, tmp_path):
    path = tmp_path / "boom.py"
    path.write_text("raise RuntimeError('boom')")
    ran = cli("tune", f"{path}:f", *SPACE, "-v")
    assert ran.code == 2
    assert "Traceback (most recent call last)" in ran.err
    assert f'File "{path}", line 1' in ran.err
    assert ran.err.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in cli("tune", f"{path}:f", *SPACE).err, "-v is of one command"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["frob"], 2, "No such command 'frob'"),
        (["cache", "show", "--frob"], 2, "No such option: --frob"),
        (["cache", "show", "", "--cache-dir", "x"], 2, "KERNEL|ID is empty"),
        (["cache", "show", "--cache-dir", T], 4, "cannot be a cache folder: <target> is a file"),
        (["cache", "show", "--cache-dir", f"{T}/below"], 4, "cannot be a cache folder: <target> is a file"),
        (["cache", "path", "--cache-dir", T], 4, "cannot be a cache folder: <target> is a file"),
        (["cache", "rm"], 2, "cache rm takes either KERNEL|ID or --all"),
        (["cache", "rm", "--all", "matmul"], 2, "cache rm takes either KERNEL|ID or --all"),
        (["cache", "export", "/no/such/folder/x.json"], 4, "/no/such/folder/x.json cannot be written: No such file"),
        (["cache", "import", "no.json"], 4, "no.json cannot be read: No such file"),
        (["cache", "import", T], 4, "is no export: it is not JSON"),
    ],
)
def test_other_commands_refuse_as_well(cli, target, words, code, message):
    open_store(target.parent / "cache").put(record())
    ran = cli(*(word.replace(T, str(target)) for word in words))
    assert_refused(ran, code, message.replace(T, str(target)))


def test_a_wrong_effort_in_the_environment(cli, target, monkeypatch):
    monkeypatch.setenv("TRITON_OPS_EFFORT", "max")
    assert_refused(
        cli("tune", f"{target}:plain", *SPACE), 2, "TRITON_OPS_EFFORT is 'max'; allowed are expected, race, quick"
    )


def test_without_a_command_there_is_the_help(cli):
    for words in ([], ["cache"]):
        ran = cli(*words)
        assert ran.code == 2
        assert ran.out == ""
        assert ran.err.startswith("Usage: triton-ops")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: text[: len(text) // 2], "it is not JSON"),
        (lambda text: text.replace("triton-ops record", "somebody's"), 'its kind is "somebody\'s"'),
        (lambda text: text.replace('"schema_version": 2', '"schema_version": 99'), "it has schema version 99"),
        (lambda text: json.dumps(json.loads(text)), None),  # another layout
        (lambda text: text.replace('"label"', '"lable"'), "its checksum is not that of its content"),
        (lambda text: text.replace('"cold"', '"warm"'), "its checksum is not that of its content"),
    ],
    ids=["torn", "foreign", "newer", "harmless", "renamed", "edited"],
)
@pytest.mark.usefixtures("steady_clock")
def test_a_bad_record_is_a_warning_and_a_miss(cli, target, damage, said):
    words = ["tune", f"{target}:plain", *SPACE, "--device", "cpu"]
    cli(*words)
    [path] = (target.parent / "cache").glob("*.record.json")
    path.write_text(damage(path.read_text()))
    (target.parent / "ran").unlink()

    shown = cli("cache", "show")
    assert shown.code == (0 if said is None else 4)
    tuned = cli(*words)
    assert tuned.code == 0
    assert (target.parent / "ran").exists() == (said is not None)
    if said is None:
        assert (shown.err, tuned.err) == ("", "")
        return
    for ran in (shown, tuned):
        assert ran.err.startswith(f"warning: {path} is ignored: ")
        assert said in ran.err.splitlines()[0]
    assert "there are no records in" in shown.err
    assert "measured now" in tuned.out


@pytest.mark.usefixtures("steady_clock")
def test_a_run_log_of_another_version_is_ignored_and_kept(cli, target):
    words = ["tune", f"{target}:plain", *SPACE, "--device", "cpu", "--force"]
    cli(*words)
    [log] = Path(target.parent).glob("cache/runs/*/*.jsonl")
    newer = json.dumps({"type": "run", "schema_version": 99}) + "\n"
    log.write_text(newer)
    ran = cli(*words)
    assert ran.code == 0
    assert f"{log} has schema version 99" in ran.err
    assert log.read_text() == newer


def test_other_warnings_are_one_line_as_well(cli, target):
    store = open_store(target.parent / "cache")
    store.put(record())
    other = replace(record(), key=replace(record().key, kernel="other"))
    store.directory.path_of(other.id).write_text('{"kind":\n"x"}')
    ran = cli("cache", "show", columns=60)
    assert ran.code == 0
    assert "matmul" in ran.out
    assert ran.err.count("\n") == 1
    assert ran.err.startswith("warning: ")


STATUS = {"cache show": 4, "cache rm --all": 4, "cache export out.json": 4, "doctor": 0, "tune": 0}
LINES = {"doctor": 0}


@pytest.mark.usefixtures("steady_clock")
@pytest.mark.parametrize("command", STATUS)
def test_a_folder_of_which_the_file_system_tells_nothing_is_one_line(cli, target, monkeypatch, command):
    """As on a network file system whose server has forgotten the folder."""
    folder = target.parent / "gone"

    def stale(call, path, *words, **more):
        if isinstance(path, (str, os.PathLike)) and Path(path) == folder:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return call(path, *words, **more)

    folder.mkdir()
    for name in ("stat", "listdir"):
        monkeypatch.setattr(os, name, partial(stale, getattr(os, name)))
    words = ["tune", f"{target}:plain", "--space", "a=1", "--device", "cpu"] if command == "tune" else command.split()
    ran = cli(*words, "--cache-dir", str(folder))
    assert ran.code == STATUS[command]
    assert "Stale file handle" in ran.err or command == "doctor"
    assert len(ran.err.splitlines()) == LINES.get(command, 1)


@pytest.mark.usefixtures("steady_clock")
def test_a_current_folder_that_was_deleted_matters_to_relative_paths_alone(cli, target, monkeypatch):
    gone = target.parent / "deleted"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    words = ["tune", f"{target}:plain", "--space", "a=1,2", "--device", "cpu"]
    assert cli(*words).code == 0
    assert list((target.parent / "cache").glob("*.record.json"))
    assert cli("tune", "no_such_module:plain").code == 2
    told = cli("cache", "show", "--cache-dir", "beside")
    assert (told.code, told.out) == (2, "")
    assert told.err == (
        "error: the current folder was deleted, and a relative path begins there (hint: go to another folder)\n"
    )
    with pytest.raises(CacheError, match="the current folder is gone, in which beside would be"):
        cache_folder("beside")
