"""Files of other tuners: the best of what they tried, and what each of them finds by its own code."""

import gzip
import hashlib
import importlib.metadata
import importlib.util
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_ops.cli.app import main
from triton_ops.exceptions import CacheError, SettingsError
from triton_ops.records import LockedDevice, LockEntry, Lockfile
from triton_ops.ship.formats import FORMATS
from triton_ops.ship.table import Table
from triton_ops.ship.table import TableRow as Row
from triton_ops.ship.tuner_files import flat, nested
from triton_ops.space import Config

T4, FLA, CACHE = FORMATS["t4"], FORMATS["fla"], FORMATS["triton-cache"]
INF, NAN = math.inf, math.nan


def written(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


# T4


def result(block, value, unit="ms", name="time", **others):
    measurements = [{"name": "cores", "value": 8.0, "unit": ""}, {"name": name, "value": value, "unit": unit}]
    return {
        "configuration": {"block": block}, "times": {"compilation": 900.0, "runtimes": [0.01]}, "objectives": [name],
        "invalidity": "correct", "correctness": 1, "measurements": measurements, **others,
    }  # fmt: skip


def t4(path, *results, timeunit="miliseconds"):
    metadata = {"timeunit": timeunit} if timeunit else {}
    return T4.read(written(path, {"schema_version": "1.0.0", "metadata": metadata, "results": results}))


SPELLED = {
    1e3: ("s", "sec", "seconds", "Second"), 1.0: ("", "ms", "msec", "miliseconds", "milliseconds", " Millisecond "),
    1e-3: ("us", "usec", "\u00b5s", "\u03bcs", "microseconds"), 1e-6: ("ns", "nsec", "nanoseconds"),
}  # fmt: skip


@pytest.mark.parametrize(("unit", "factor"), [(unit, factor) for factor, units in SPELLED.items() for unit in units])
def test_the_fastest_correct_result_is_the_best_in_any_unit(unit, factor, tmp_path):
    failed = [
        result(8, "CompilationFailedConfig", unit, invalidity="compile", correctness=0),
        result(16, 0.01, unit, invalidity="runtime", correctness=0),
        result(32, 0.01, unit, correctness=0),
    ]
    table = t4(tmp_path / "r.json", result(1, 12.26, unit), *failed, result(2, 0.66, unit), result(4, [0.8], unit))
    (best,) = table.best()
    assert (best.config, best.median_ms) == (Config(block=2), pytest.approx(0.66 * factor))
    assert table.remarks == ()
    assert [row.failure for row in table.rows] == ["", "compile", "runtime", "wrong", "", ""]


def test_results_in_several_units_are_compared(tmp_path):
    table = t4(tmp_path / "r.json", result(1, 0.5, "ms"), result(2, 400, "us"), result(4, 0.001, "s"))
    assert [row.config["block"] for row in table.best()] == [2]


@pytest.mark.parametrize(
    ("results", "timeunit", "best", "said"),
    [
        ([result(1, -1.3, "", "score"), result(2, 0.8, "", "score")], "ms", [],
         ["its objective is score, and it does not say if more of it is better: times decide",
          "2 of 2 correct results have no usable time"]),
        ([result(1, 90.0, name="GFLOP/s"), result(2, 800.0, name="GFLOP/s")], "ms", [2],
         ["its objective is GFLOP/s: the most is the best"]),
        ([result(1, 96.3, "Microseconds", "Total"), result(2, 0.09, "Milliseconds", "Total")], "ms", [2],
         ["its objective is Total: the least is the best"]),
        ([result(1, 9.0, "J", "energy"), result(2, 8.0, "J", "energy")], "ms", [2],
         ["its objective is energy: the least is the best"]),
        ([result(1, 9.0, "J", "energy"), result(2, 8.0, "mJ", "energy")], "ms", [],
         ["its objective is energy: the least is the best",
          "its energy has several units, which are not known: 'J', 'mJ'",
          "2 of 2 correct results have no usable energy"]),
        ([result(1, 3.0, "", objectives=["score"]), result(2, 2.0, "")], "ms", [2],
         ["its objective is score or time, and it does not say if more of it is better: times decide"]),
        ([result(1, 3.0, ""), result(2, 2.0, "")], "", [2],
         ["the unit '' of its times is not known: they decide, and are not kept"]),
        ([result(1, 3.0, "ticks"), result(2, 4.0, "ms")], "ms", [2],
         ["time in 'ticks', a unit that is not known, is left out", "1 of 2 correct results have no usable time"]),
        ([result(1, 3.0, "ticks"), result(2, 4.0, "tocks")], "ms", [],
         ["its time has several units, which are not known: 'ticks', 'tocks'",
          "2 of 2 correct results have no usable time"]),
        ([result(1, "3.0"), result(2, -1.0), result(4, NAN), result(8, INF), result(16, 5.0)], "ms", [16],
         ["4 of 5 correct results have no usable time"]),
        ([result(1, 3.0, invalidity="lost"), result(2, 4.0)], "ms", [2],
         ["1 results ended as 'lost', which T4 has not"]),
        ([result(1, 3.0, measurements=[]), result(2, 4.0, measurements=[], times={"runtimes": [0.1, 2.0, 3.0]})], "us",
         [1], []),
        ([result(1, 3.0, objectives=["time", "energy"])], "ms", [1],
         ["its further objectives are not compared: energy"]),
        ([], "ms", [], []),
    ],
)  # fmt: skip
def test_what_decides_in_a_file_is_said(results, timeunit, best, said, tmp_path):
    table = t4(tmp_path / "r.json", *results, timeunit=timeunit)
    assert [row.config["block"] for row in table.best()] == best
    assert list(table.remarks) == said


def test_a_time_is_kept_beside_another_objective_and_none_without_a_known_unit(tmp_path):
    both = [{"name": "energy", "value": 2.0, "unit": "J"}, {"name": "time", "value": 700.0, "unit": "us"}]
    (best,) = t4(tmp_path / "r.json", result(1, 0, objectives=["energy"], measurements=both)).best()
    assert best.median_ms == pytest.approx(0.7)
    (best,) = t4(tmp_path / "r.json", result(1, 700.0, "Microseconds", "Total")).best()
    assert best.median_ms == pytest.approx(0.7)
    (best,) = t4(tmp_path / "r.json", result(1, 3.0, "ticks")).best()
    assert best.median_ms is None


def test_a_compressed_file_is_imported_and_one_without_a_best_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    content = {"results": [result(1, 3.0, "", name=name) for name in ("time", "time")] + [result(2, 2.0, "")]}
    (tmp_path / "A100_T4.json.gz").write_bytes(gzip.compress(json.dumps(content).encode()))
    words = ["exchange", "import", "t4", "--kernel", "conv", "--set", "device_name=A100", "--set", "kind=cuda"]
    assert main([*words, "A100_T4.json.gz"]) == 0
    (entry,) = Lockfile.read("triton-ops.lock.json").entries
    assert entry.config == Config(block=2)
    assert main([*words, "--row", "M", "A100_T4.json.gz"]) == 2
    assert "name its one problem: --argument M=64" in capsys.readouterr().err
    written(tmp_path / "score.json", {"results": [result(1, 3.0, "", "score")]})
    capsys.readouterr()
    assert main([*words, "score.json"]) == 4
    message = capsys.readouterr().err
    assert "score.json: its objective is score" in message
    assert "score.json has no config that can be called the best" in message
    assert FORMATS["t4"].look_up(tmp_path, {"file": "score.json"}, ()) is None
    for kind, told in (([], "the name A100 does not tell its kind"), (["--set", "kind=gpu"], "there is no kind gpu")):
        assert main([*words[:-2], *kind, "A100_T4.json.gz"]) == 2
        assert told in capsys.readouterr().err


def test_a_file_has_the_times_of_one_problem_and_is_not_compressed(tmp_path):
    timed = Row((), Config(b=1), median_ms=1.0)
    for facts, rows, message in (
        ({}, [Row((), Config(b=1))], "has no time"),
        ({}, [timed, Row((2,), Config(b=1), median_ms=1.0)], "holds one problem, not several"),
        ({"file": "x.json.gz"}, [timed], "would not be compressed"),
    ):
        with pytest.raises(SettingsError, match=message):
            T4.write(Table(facts, tuple(rows)), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.extras("kernel_tuner")
def test_kernel_tuners_schema_takes_what_is_written_and_its_results_are_read(tmp_path):
    files, util = (importlib.import_module(f"kernel_tuner.{name}") for name in ("file_utils", "util"))
    rows = (Row((), Config(b=1), median_ms=2.0), Row((), Config(b=2), failure="resources"))
    path = T4.write(Table({}, rows), tmp_path)
    files.jsonschema.validate(json.loads(path.read_text()), files.output_file_schema("results")[1])

    spent = {f"{what}_time": 9.0 for what in ("compile", "benchmark", "framework", "strategy", "verification")}
    tried = [
        {"b": 1, "time": 3.0, "times": [2.9, 3.1], "GFLOP/s": 10.0, **spent},
        {"b": 2, "time": util.RuntimeFailedConfig(), "__error__": util.RuntimeFailedConfig(), **spent},
        {"b": 4, "time": 2.0, "times": [2.0], "GFLOP/s": 15.0, **spent},
    ]
    for objective in ("time", "GFLOP/s"):
        files.store_output_file(str(tmp_path / "kt.json"), tried, {"b": [1, 2, 4]}, objective)
        table = T4.read(tmp_path / "kt.json")
        assert [(row.config["b"], row.median_ms) for row in table.best()] == [(4, 2.0)]
        assert [row.failure for row in table.rows] == ["", "runtime", ""]


# Triton's cache of autotuning


def timed(times, **tunables):
    return [nested({"num_warps": 4, **tunables}), times]


def cached(path, *pairs, key=(4096, "torch.bfloat16")):
    return CACHE.read(written(path / "ABC" / "mm.autotune.json", {"key": key, "configs_timings": pairs}))


def test_configs_that_could_not_run_are_failures_and_the_least_times_win(tmp_path):
    pairs = [timed([INF] * 3, B=1), timed([3.0, 2.0, 4.0], B=2), timed([2.0, 1.5, 9.0], B=4), timed(2.5, B=8)]
    table = cached(tmp_path, *pairs, timed([2.0, 1.0, 9.0], B=16), key=(NAN, INF, -INF, None, [1, [2]], "torch.int8"))
    (best,) = table.best()
    assert (best.config, best.median_ms) == (Config(B=16, num_warps=4, num_stages=3), 2.0)
    assert [row.failure for row in table.rows] == ["compile", "", "", "", ""]
    assert [row.median_ms for row in table.rows] == [None, 3.0, 2.0, 2.5, 2.0]
    assert best.at[2:] == (-INF, None, (1, (2,)), "torch.int8")
    assert math.isnan(best.at[0])
    assert CACHE.look_up(tmp_path, table.facts, ())[1] == best


def test_times_that_are_none_decide_nothing_and_the_look_up_is_that_of_triton(tmp_path):
    table = cached(tmp_path, timed([NAN] * 3, B=1), timed([-1.0, 0.0, 0.0], B=2), timed([2.0, 1.0, 3.0], B=4))
    assert [row.config["B"] for row in table.best()] == [4]
    assert table.remarks == ("2 of 3 configs have no usable time",)
    theirs = min({1: [NAN] * 3, 2: [-1.0, 0.0, 0.0], 4: [2.0, 1.0, 3.0]}.items(), key=lambda pair: pair[1])[0]
    path, row = CACHE.look_up(tmp_path, table.facts, (4096, "bfloat16"))
    assert (path.name, row.config["B"]) == ("mm.autotune.json", theirs)
    assert CACHE.look_up(tmp_path, table.facts, (1, "bfloat16")) is None
    assert cached(tmp_path, timed([INF] * 3, B=1), timed([NAN], B=2)).best() == ()


def test_fields_that_are_not_known_are_kept_and_tuples_are_not_written(tmp_path):
    fields = {**nested({"B": 1}), "num_consumer_groups": 2}
    fields["kwargs"]["SHAPE"] = [8, 16]
    table = cached(tmp_path, [fields, [1.0] * 3])
    config = Config(B=1, SHAPE=(8, 16), num_warps=4, num_stages=3, num_consumer_groups=2)
    assert table.best()[0].config == config
    with pytest.raises(SettingsError, match="SHAPE is a tuple"):
        CACHE.write(table, tmp_path)
    for at, ms, message in (((), 1.0, "no file without a key"), ((1,), None, "has no time")):
        with pytest.raises(SettingsError, match=message):
            CACHE.write(Table(table.facts, (Row(at, Config(B=1), median_ms=ms),)), tmp_path)


@given(st.dictionaries(st.sampled_from(["BM", "num_warps", "num_stages", "maxnreg"]), st.integers(1, 64), min_size=1))
def test_a_config_survives_the_form_of_triton(values):
    assert flat(nested(values)).items() >= values.items()


@pytest.mark.triton
def test_triton_itself_finds_the_file_that_is_written(tmp_path, monkeypatch):
    triton = pytest.importorskip("triton")
    from triton_ops.backend.offline import pretending
    from triton_ops.device import Target

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))

    @triton.autotune([triton.Config({"B": b}, num_warps=w) for b, w in ((1, 2), (2, 4))], key=["n"], cache_results=True)
    @triton.jit
    def add(x, n, B: triton.language.constexpr):
        triton.language.store(x, n + B)

    def measured():
        add.configs_timings = {config: [float(config.kwargs["B"])] * 3 for config in add.configs}

    with pretending(Target.named("sm_90")):
        assert add.check_disk_cache((4096, "torch.float32"), add.configs, measured) is False
        (path,) = tmp_path.rglob("*.autotune.json")
        table = CACHE.read(path)
        assert [r.median_ms for r in table.rows] == [1.0, 2.0]
        assert table.best()[0].config == Config(B=1, num_warps=2, num_stages=3)

        slower = Row(table.rows[0].at, table.rows[0].config, median_ms=9.0)
        CACHE.write(Table(table.facts, (slower, *table.rows[1:])), tmp_path)
        assert add.check_disk_cache((4096, "torch.float32"), add.configs, lambda: pytest.fail("it measured")) is True
        assert add.cache[(4096, "torch.float32")].kwargs == {"B": 2}


def test_an_import_from_tritons_cache_names_its_extents_and_leaves_the_dtypes_out(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cached(tmp_path, timed([INF] * 3, B=1), timed([3.0, 2.0, 4.0], B=2), key=[4096, 512, "torch.bfloat16"])
    words = ["exchange", "import", "triton-cache", "ABC/mm.autotune.json", "--kernel", "mm", "--row", "M", "--row", "N"]
    assert main([*words, "--set", "device_name=NVIDIA H100"]) == 0
    assert "left out: the dtypes in the keys, torch.bfloat16" in capsys.readouterr().err
    (entry,) = Lockfile.read("triton-ops.lock.json").entries
    assert (entry.problem, entry.config["B"]) == ({"M": 4096, "N": 512}, 2)


# flash-linear-attention


def keyed(at, block):
    return Row(at, Config(BT=block, num_warps=4, num_stages=3))


ROWS = (keyed((128, True, "bfloat16"), 16), keyed((256, True, "bfloat16"), 32), keyed((128, None, "float16"), 32))
KERNEL = {"kernel_name": "k", "device_name": "AMD Instinct MI250X/MI250"}
ASKED = (  # a key, and what each mode gives for it: the BT of the config
    ((256, True, "torch.bfloat16"), {"strict": 32, "fuzzy": 32, "full": 32}),
    ((512, True, "torch.bfloat16"), {"strict": None, "fuzzy": 16, "full": 16}),
    ((512, None, "torch.float16"), {"strict": None, "fuzzy": 32, "full": 32}),
    ((512, False, "torch.bfloat16"), {"strict": None, "fuzzy": None, "full": 32}),
    ((512, True), {"strict": None, "fuzzy": None, "full": 32}),
)
ALWAYS = {"disabled": None, "default": 32, "always": 32}


def test_entries_are_found_by_the_rule_of_each_mode(tmp_path):
    path = FLA.write(Table(KERNEL, ROWS), tmp_path)
    assert path == tmp_path / "k.json"
    digest = hashlib.md5(b'[128,true,"torch.bfloat16"]').hexdigest()
    assert next(iter(json.loads(path.read_text())["autotune_entries"])) == digest
    for key, answers in ASKED:
        for mode, block in {**answers, **ALWAYS}.items():
            answer = FLA.look_up(tmp_path, {**KERNEL, "mode": mode}, key)
            assert (answer and answer[1].config["BT"]) == block, (key, mode)
    with pytest.raises(SettingsError, match="no mode fast"):
        FLA.look_up(tmp_path, {**KERNEL, "mode": "fast"}, ())


def test_a_table_in_the_engines_own_package_stands_in_the_folder_of_the_device(tmp_path):
    folder = tmp_path / "fla" / "configs"
    path = FLA.write(Table(KERNEL, ROWS), folder)
    assert path == folder / "AMD_Instinct_MI250X_MI250" / "k.json"
    assert FLA.read(path).facts == {
        "kernel_name": "k", "device_name": "AMD_Instinct_MI250X_MI250", "triton_version": None,
    }  # fmt: skip
    assert FLA.look_up(folder, KERNEL, ROWS[0].at)[0] == path


def engine(monkeypatch, tmp_path, mode):
    """The module of flash-linear-attention with its look-up."""
    monkeypatch.setenv("FLA_CACHE_MODE", mode)
    monkeypatch.setenv("FLA_CONFIG_DIR", str(tmp_path))
    place = importlib.metadata.distribution("fla-core").locate_file("fla/ops/utils/cache.py")
    spec = importlib.util.spec_from_file_location("fla_cache", place)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(importlib.import_module("sys").modules, "fla_cache", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.extras("fla")
@pytest.mark.triton
@pytest.mark.parametrize("mode", ["disabled", "strict", "fuzzy", "full", "default", "always"])
def test_the_engine_itself_finds_what_is_written(mode, tmp_path, monkeypatch):
    pytest.importorskip("triton")
    fla = engine(monkeypatch, tmp_path, mode)
    FLA.write(Table(KERNEL, ROWS), tmp_path)
    FLA.write(Table({**KERNEL, "kernel_name": "one"}, (keyed((), 64),)), tmp_path)
    written(tmp_path / "old.json", {**nested(Config(BT=8)), "kernel_name": "old"})
    for key, answers in (*ASKED, *(((*row.at[:-1], f"torch.{row.at[-1]}"), {}) for row in ROWS)):
        for kernel in ("k", "one", "old", "none"):
            theirs = fla.load_cached_config(kernel, fla.AutotuneKey(key))
            ours = FLA.look_up(tmp_path, {**KERNEL, "kernel_name": kernel, "mode": mode}, key)
            assert (theirs and theirs["kwargs"]) == (ours and {"BT": ours[1].config["BT"]}), (kernel, key)
            if kernel == "k" and mode in answers:
                assert (theirs and theirs["kwargs"]["BT"]) == answers[mode]
            if theirs and kernel != "old":
                assert theirs.keys() >= {"num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override"}
    folder = tmp_path / "fla" / "configs" / fla.sanitize_gpu_name(KERNEL["device_name"])
    assert FLA.write(Table(KERNEL, ROWS), folder.parent).parent == folder


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"autotune_entries": []}, "no autotune_entries by their MD5"),
        ({"autotune_entries": {"a": {"autotune_key": [1], "config": None}}}, "an entry without a config"),
        ({"autotune_entries": {"a": {"config": {"kwargs": {}}}}}, "no entry with an autotune_key"),
        ({"autotune_entries": {"a": {"autotune_key": [1], "config": {"BT": 1}}}}, "a config without kwargs"),
        ({"default_config": 3}, "a config without kwargs"),
        ({"kernel_name": "k"}, "a config without kwargs"),
    ],
)
def test_a_table_that_the_engine_would_not_use_is_refused(content, said, tmp_path):
    with pytest.raises(CacheError, match=said):
        FLA.read(written(tmp_path / "k.json", content))


def test_entries_without_a_key_or_under_another_name_are_counted(tmp_path):
    entry = {"autotune_key": [1, "torch.int8"], "config": nested({"BT": 8}), "best_timing": [0.5, 0.4, 0.6]}
    content = {"autotune_entries": {"a": entry, "b": {"config": nested({"BT": 4})}}, "default_config": None}
    table = FLA.read(written(tmp_path / "NVIDIA_H200" / "k.json", content))
    assert table.remarks == (
        "1 entries have no autotune_key, and are left out",
        "1 entries are not under their key's MD5",
    )
    assert [(row.at, row.median_ms) for row in table.rows] == [((1, "torch.int8"), 0.5)]
    assert table.facts["device_name"] == "NVIDIA_H200"
    facts = {"kernel_name": "k", "mode": "strict"}
    assert FLA.look_up(tmp_path / "NVIDIA_H200", facts, (1, "int8")) is None  # it is there under another name
    assert FLA.look_up(tmp_path / "NVIDIA_H200", {**facts, "mode": "fuzzy"}, (1, "int8"))[1] == table.rows[0]


def test_entries_are_imported_without_the_default_and_dtypes_tell_rows_apart(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    FLA.write(Table(KERNEL, ROWS[:2]), tmp_path / "NVIDIA_H200")
    words = ["exchange", "import", "fla", "NVIDIA_H200/k.json", "--kernel", "k", "--row", "T", "--row", "VARLEN"]
    assert main(words) == 0
    message = capsys.readouterr().err
    assert "k.json: left out: the default config, which is for no extents" in message
    assert "k.json: left out: the dtypes in the keys, torch.bfloat16" in message
    lock = Lockfile.read("triton-ops.lock.json")
    assert [dict(entry.problem) for entry in lock.entries] == [{"T": t, "VARLEN": True} for t in (128, 256)]
    assert lock.devices[0].why_not({"kind": "cuda", "name": "NVIDIA H200", "arch": "sm_90", "units": 132}) is None

    same = (keyed((128, True, "bfloat16"), 16), keyed((128, True, "float16"), 32))
    FLA.write(Table(KERNEL, same), tmp_path / "NVIDIA_H200")
    assert main(words) == 2
    assert "rows differ in dtypes alone: torch.bfloat16, torch.float16" in capsys.readouterr().err
    assert main([*words, "--row", "dtype", "--lockfile", "both.json"]) == 0
    assert len(Lockfile.read("both.json").entries) == 2


def test_a_look_up_in_one_table_takes_its_name_and_a_key_as_json(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    FLA.write(Table(KERNEL, ROWS), tmp_path)
    words = ["exchange", "look-up", "fla", "k.json", "--set", "mode=strict"]
    for flag in ("true", "True"):
        assert main([*words, "--at", "256", "--at", flag, "--at", "bfloat16"]) == 0
        message = capsys.readouterr()
        assert (message.out, message.err) == (
            "BT=32 num_warps=4 num_stages=3\n",
            "the row for 256 True torch.bfloat16 of k.json\n",
        )
    assert main([*words, "--at", "256", "--at", "null", "--at", "bfloat16"]) == 4
    assert main(["exchange", "look-up", "fla", "k.json", "--set", "mode=default", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["row"] == []
    cached(tmp_path, timed([1.0] * 3, B=2), key=[NAN, [1, 2], "torch.int8"])
    place = ["exchange", "look-up", "triton-cache", "ABC/mm.autotune.json"]
    assert main([*place, "--at", "NaN", "--at", "[1, 2]", "--at", "int8"]) == 0
    assert main([*place, "--at", "1"]) == 4


def test_what_differs_from_a_lockfile_is_told_and_replaced_where_that_is_asked(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["exchange", "import", "fla", "NVIDIA_H200/k.json", "--kernel", "k", "--row", "T", "--row", "V"]
    FLA.write(Table(KERNEL, ROWS[:2]), tmp_path / "NVIDIA_H200")
    assert main(words) == 0
    FLA.write(
        Table(KERNEL, (keyed((128, True, "bfloat16"), 64), keyed((512, True, "bfloat16"), 8))), tmp_path / "NVIDIA_H200"
    )
    capsys.readouterr()
    assert main(words) == 0
    told = capsys.readouterr()
    assert "2 rows read, 1 added" in told.out
    assert "differs: T=128 V=True: BT=16 num_stages=3 num_warps=4 | BT=64 num_stages=3 num_warps=4" in told.err
    assert "differs: T=256 V=True: BT=32 num_stages=3 num_warps=4 | no longer in the table" in told.err
    assert "2 entries of triton-ops.lock.json differ from the table, and stay (hint: --replace)" in told.err

    def kept():
        return {entry.problem["T"]: entry.config["BT"] for entry in Lockfile.read("triton-ops.lock.json").entries}

    assert kept() == {128: 16, 256: 32, 512: 8}
    assert main([*words, "--replace"]) == 0
    assert kept() == {128: 64, 512: 8}
    assert "replaced: T=128" in capsys.readouterr().err
    assert main(words) == 0
    assert "differ" not in capsys.readouterr().err


def test_what_is_not_known_in_a_file_is_named(tmp_path):
    table = T4.read(written(tmp_path / "r.json", {"results": [], "notes": 1, "schema_version": "2.0.0"}))
    assert table.remarks == ("not known, and not used: notes", "its schema is 2.0.0; what is read is that of 1.0.0")
    entry = {"autotune_key": [1, "torch.int8"], "config": nested({"BT": 8}), "score": 1}
    digest = hashlib.md5(b'[1,"torch.int8"]').hexdigest()
    table = FLA.read(written(tmp_path / "k.json", {"autotune_entries": {digest: entry}, "gpu": "x"}))
    assert table.remarks == ("not known, and not used: gpu", "not known, and not used: score")
    content = {"key": [1], "configs_timings": [timed([1.0], B=1)], "timestamp": 3}
    table = CACHE.read(written(tmp_path / "k.autotune.json", content))
    assert table.remarks == ("not known, and not used: timestamp",)


def test_a_key_without_a_dtype_is_not_written_for_kernels_that_have_tensors(tmp_path):
    with pytest.raises(SettingsError, match="the key 128 has no dtype"):
        FLA.write(Table(KERNEL, (keyed((128,), 16),)), tmp_path)


def test_a_winner_of_ones_own_stays_where_a_table_differs_from_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    device = LockedDevice(alias="nvidia-h200", kind="cuda", name="NVIDIA H200")
    own = LockEntry(
        kernel="k", device=device.alias, config=Config(BT=64), problem={"T": 128}, identity={"source": "abc"}
    )
    Lockfile((device,), (own,)).write("triton-ops.lock.json")
    FLA.write(Table(KERNEL, (keyed((128, "bfloat16"), 16), keyed((256, "bfloat16"), 32))), tmp_path / "NVIDIA_H200")
    words = ["exchange", "import", "fla", "NVIDIA_H200/k.json", "--kernel", "k", "--row", "T"]
    assert main(words) == 0
    told = capsys.readouterr()
    assert "2 rows read, 1 added" in told.out
    assert "differs: k: BT=64 | BT=16 num_stages=3 num_warps=4" in told.err
    assert [entry.config["BT"] for entry in Lockfile.read("triton-ops.lock.json").entries] == [64, 32]
    assert main([*words, "--replace"]) == 0
    assert [entry.config["BT"] for entry in Lockfile.read("triton-ops.lock.json").entries] == [16, 32]


@pytest.mark.parametrize("value", [NAN, INF, [1, 2], 10**40])
def test_a_key_that_a_lockfile_cannot_hold_is_left_out(value, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cached(tmp_path, timed([3.0, 2.0, 4.0], B=2), key=[value, "torch.bfloat16"])
    words = ["exchange", "import", "triton-cache", "ABC/mm.autotune.json", "--kernel", "mm", "--row", "M"]
    assert main([*words, "--set", "device_name=NVIDIA H100"]) == 4
    assert "left out: 1 rows for what a lockfile cannot hold, such as" in capsys.readouterr().err
    assert not (tmp_path / "triton-ops.lock.json").exists()
