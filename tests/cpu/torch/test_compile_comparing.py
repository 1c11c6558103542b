"""The whole comparison of compile modes with processes that only tell times: what is raced, confirmed, recommended."""

from __future__ import annotations

import errno
import itertools
import math
import os
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from triton_ops import SettingsError, Status, TuningFailedError
from triton_ops.backend import CandidateError
from triton_ops.device import DeviceSpec
from triton_ops.evaluation import contest
from triton_ops.request import TuneOptions
from triton_ops_torch import compiled_files
from triton_ops_torch.comparing_modes import Comparing, ModesRequest
from triton_ops_torch.compile_mode import CUDAGRAPHS, EAGER, MODES, as_mode
from triton_ops_torch.compiled_files import run_folder
from triton_ops_torch.mode_process import Loaded, ModeTrial, VisitTimes
from triton_ops_torch.mode_report import left_to_python

GPU = DeviceSpec("cuda", "a GPU", "sm_90", 132)


class Machine:
    """Answers for processes: milliseconds by mode, in the race and in fresh processes, and how loading fails."""

    def __init__(self, **times_ms):
        self.times_ms = {name.replace("_", "-"): ms for name, ms in times_ms.items()}
        self.fresh_ms = {}
        self.failing = {}
        self.dies_after = {}
        self.noise = random.Random(0)
        self.noise_of = {}
        self.started = []
        self.traced, self.interrupted_in = "of this model", ""
        self.alive = self.most_alive = 0

    def ms(self, mode, number):
        known = self.fresh_ms if number and mode.name in self.fresh_ms else self.times_ms
        named = known.get(mode.name)
        if named is None:  # a variation: fast without graphs
            named = 1.0 if mode.options.get(CUDAGRAPHS) is False else 3.0
        return named * math.exp(self.noise.gauss(0, self.noise_of.get(mode.name, 0.001)))

    def compile(self, mode, folder):
        if folder is not None:
            traces = Path(folder) / "torch_compile_debug" / f"run_{len(self.started)}"
            traces.mkdir(parents=True)
            (traces / "ir_post_fusion.txt").write_text(self.traced)
        if mode.name == self.interrupted_in:
            raise KeyboardInterrupt


def station_of(machine):
    class Station:
        def __init__(self, assignment):
            self.mode, self.limits, self.environment = assignment.way, assignment.patience, assignment.environment
            self.alive, self.visits = False, 0
            self.number = sum(other.mode.name == self.mode.name for other in machine.started)
            machine.started.append(self)

        def ask(self, _question):
            if self.mode.name in machine.failing:
                return ModeTrial(*machine.failing[self.mode.name])
            self.alive = True
            machine.compile(self.mode, self.environment.get("TORCH_COMPILE_DEBUG_DIR"))
            machine.alive += 1
            machine.most_alive = max(machine.most_alive, machine.alive)
            calls_s = (2.0, 0.1, 0.001) if not self.mode.eager else (0.001, 0.001, 0.001)
            loaded = Loaded(calls_s=calls_s, compile_s=1.9, label="a model", device_name=machine.device, facts="f")
            return ModeTrial(loaded=loaded)

        def ask_again(self, question):
            self.visits += 1
            if self.visits > machine.dies_after.get(self.mode.name, math.inf):
                raise CandidateError(Status.CRASH, "its process was killed by SIGSEGV during its call")
            return VisitTimes([[machine.ms(self.mode, self.number) for _ in range(question.samples)]], ())

        def close(self):
            machine.alive -= self.alive
            self.alive = False

    return Station


@pytest.fixture
def compared(monkeypatch, tmp_path):
    def run(machine, modes=None, *, gpu=True, clock=None, **asked):
        monkeypatch.setattr(contest, "TaskWorker", station_of(machine))
        machine.device = "cuda:0" if gpu else "cpu"
        if gpu:
            monkeypatch.setattr(contest, "probe", lambda _: GPU)
            monkeypatch.setattr(contest.Turns, "key_of", lambda *_: "")
        chosen = tuple(map(as_mode, modes or (EAGER, *MODES)))
        options = TuneOptions(cache_dir=tmp_path, budget_s=asked.pop("budget_s", None))
        request = ModesRequest(packed=b"", modes=chosen, options=options, **{"seconds": 30.0, **asked})
        message = []
        with Comparing(request, message.append, **({} if clock is None else {"clock": clock})) as result:
            report = result.run()
        assert machine.alive == 0, "every process has ended"
        return report, message

    return run


def machine(**more):
    times = {"eager": 1.5, "default": 1.13, "reduce_overhead": 1.2, "max_autotune_no_cudagraphs": 1.0}
    return Machine(**{**times, "max_autotune": 3.25, **more})


def test_the_fastest_mode_is_recommended_and_confirmed_in_fresh_processes(compared):
    fake = machine()
    report, message = compared(fake)
    assert report.recommended == "max-autotune-no-cudagraphs"
    assert report.chosen.mode == "max-autotune-no-cudagraphs"
    assert "in fresh processes max-autotune-no-cudagraphs is 1.5" in report.confirmed
    assert report.mode(report.recommended).relative == pytest.approx(1 / 1.5, rel=0.05)
    assert [each.mode.name for each in fake.started[-2:]] == ["max-autotune-no-cudagraphs", "eager"]
    row = report.mode(report.recommended)
    assert row.steady_ms == pytest.approx(1.0, rel=0.01)
    assert row.break_even_calls == pytest.approx(2.1e3 / 0.5, rel=0.05)
    assert report.mode("eager").relative == 1
    assert message[-1].startswith("confirming")


def test_the_culprit_of_the_slow_mode_is_named_from_modes_that_differ_in_one_option(compared):
    report, _ = compared(machine())
    assert (report.culprit.option, report.culprit.slower) == (CUDAGRAPHS, "max-autotune")
    assert any("max-autotune is 2.88 times as slow as default" in note for note in report.notes)


def test_modes_are_told_apart_by_their_own_noise_and_not_by_that_of_eager(compared):
    fake = machine(default=1.06, reduce_overhead=1.0, max_autotune_no_cudagraphs=1.3)
    fake.noise_of = {"eager": 0.4, "default": 0.02}  # eager waits for the host, and a recorded graph does not
    report, _ = compared(fake)
    assert report.recommended == "reduce-overhead"
    assert report.confirmed


def test_eager_is_recommended_where_no_mode_is_proven_faster(compared):
    same = dict.fromkeys(("default", "reduce_overhead", "max_autotune_no_cudagraphs", "max_autotune"), 1.5)
    report, _ = compared(machine(**same))
    assert (report.recommended, report.chosen.eager, report.confirmed) == ("eager", True, "")
    assert report.mode("default").break_even_calls > 0


def test_a_winner_that_is_slower_in_fresh_processes_is_not_kept(compared):
    fake = machine()
    fake.fresh_ms = {"max-autotune-no-cudagraphs": 1.6}
    report, _ = compared(fake)
    assert report.recommended == "eager"
    assert report.confirmed.endswith("eager stays")


def test_modes_that_fail_are_rows_and_the_rest_goes_on(compared):
    fake = machine()
    fake.failing = {"default": (Status.COMPILE, "no registers left"), "max-autotune": (Status.RESOURCES, "no memory")}
    fake.dies_after = {"max-autotune-no-cudagraphs": 8}
    report, _ = compared(fake)
    assert {row.name: str(row.status) for row in report.modes} == {
        "eager": "ok", "default": "compile", "reduce-overhead": "ok",
        "max-autotune-no-cudagraphs": "crash", "max-autotune": "resources",
    }  # fmt: skip
    assert "SIGSEGV" in report.mode("max-autotune-no-cudagraphs").reason
    assert report.recommended == "reduce-overhead"


def test_eager_that_is_lost_is_blamed_for_itself(compared):
    """It is screened alone, then beside each mode; what was timed before stays."""
    lost = machine()
    lost.dies_after["eager"] = 2
    with pytest.raises(TuningFailedError, match=r"does not run as it is: crash: its process was killed by SIGSEGV"):
        compared(lost)
    later = machine()
    later.dies_after["eager"] = 8
    report, _ = compared(later)
    rows = {row.name: row for row in report.modes}
    assert [str(row.status) for row in rows.values()] == ["crash", "ok", "deferred", "deferred", "deferred"]
    assert rows["reduce-overhead"].reason == (
        "eager, beside which it is timed, was lost: its process was killed by SIGSEGV during its call"
    )
    assert report.recommended == "eager"


def test_at_most_four_models_wait_beside_eager(compared):
    names = ["eager", "default", "gemm-aten", "gemm-triton", "no-fusion", "no-layout", "freezing", "max-autotune"]
    fake = Machine(eager=5.0, **{name.replace("-", "_"): float(place) for place, name in enumerate(names) if place})
    report, _ = compared(fake, names)
    assert report.recommended == "default"
    assert fake.most_alive == 6, "eager, four that wait, and the one that is screened"
    assert all(row.steady_ms is not None for row in report.modes)


def test_a_budget_that_is_used_up_defers_the_modes_that_are_left(compared):
    ticks = itertools.count(0.0, 10.0)
    report, _ = compared(machine(), clock=lambda: next(ticks), budget_s=45.0)
    statuses = [str(row.status) for row in report.modes]
    assert statuses[0] == "ok"
    assert statuses[-1] == "deferred"
    assert "the budget of 45 s was used up" in report.modes[-1].reason


def test_the_winner_is_confirmed_though_the_budget_is_used_up(compared):
    fake, ticks = machine(), itertools.count(0.0, 10.0)
    report, _ = compared(fake, ["eager", "default"], clock=lambda: next(ticks), budget_s=45.0)
    assert report.recommended == "default"
    assert [each.limits.compile_s for each in fake.started[1:]] == [15.0, 1200.0, 1200.0]


def test_slow_modes_are_varied_in_one_option_to_say_why(compared):
    fake = Machine(eager=1.5, max_autotune=3.0)
    report, _ = compared(fake, ["eager", "max-autotune"], why=True)
    assert report.mode("max-autotune without CUDA graphs").options[CUDAGRAPHS] is False
    assert report.culprit.option == CUDAGRAPHS
    assert report.culprit.factor == pytest.approx(3.0, rel=0.05)
    assert report.recommended == "max-autotune without CUDA graphs"
    assert report.culprit.text.endswith(
        "as long as max-autotune without CUDA graphs; they differ in triton.cudagraphs alone, which is True in the "
        "slower one and False in the faster one"
    )


def test_without_a_gpu_nothing_names_cuda_graphs_as_a_cause(compared):
    fake = Machine(eager=1.5, default=1.0, reduce_overhead=1.0, max_autotune_no_cudagraphs=3.0, max_autotune=3.0)
    fake.times_ms |= {"max-autotune-no-cudagraphs with ATen's products": 1.0}
    report, message = compared(fake, why=True, gpu=False)
    assert "3.00 times as slow as default" in " ".join(report.notes)
    assert report.culprit.option == "max_autotune_gemm_backends"
    words = " ".join([*report.notes, *message, report.culprit.text, *(row.name + row.reason for row in report.modes)])
    assert not re.search("CUDA graphs|cudagraphs", words.replace("-no-cudagraphs", ""))


@pytest.mark.parametrize(("ms", "culprit"), [(1.0, "max_autotune_gemm_backends"), (3.0, None)])
def test_a_mode_alone_is_varied_and_it_is_said_where_no_option_makes_it_slow(compared, ms, culprit):
    fake = Machine(eager=5.0, max_autotune=3.0)
    fake.times_ms |= {"max-autotune with ATen's products": ms, "max-autotune without CUDA graphs": 3.0}
    report, _ = compared(fake, ["eager", "max-autotune"], why=True)
    assert (report.culprit and report.culprit.option) == culprit
    assert ("no single option that was tried makes a mode 5 % slower" in report.notes) == (culprit is None)


def test_a_culprit_whose_option_only_one_of_the_two_sets_says_what_the_other_has(compared):
    fake = Machine(eager=5.0, default=3.0)
    fake.times_ms |= {"default without fusion": 1.0, "default with CUDA graphs": 3.0}
    report, _ = compared(fake, ["eager", "default"], why=True)
    assert report.culprit.text.endswith("which is torch's default in the slower one and 1 in the faster one")


def test_modes_that_differ_in_graphs_alone_are_one_program_without_a_gpu(compared):
    fake = machine()
    report, _ = compared(fake, gpu=False)
    assert "max-autotune" not in [each.mode.name for each in fake.started]
    row, same = report.mode("max-autotune"), report.mode("max-autotune-no-cudagraphs")
    assert row.steady_ms == same.steady_ms
    assert row.reason == "on this device it is the same program as max-autotune-no-cudagraphs, whose figures these are"
    assert report.culprit is None


def texts(folder):
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.txt")}


def test_the_folder_of_a_mode_holds_the_run_that_was_collected_last(compared, tmp_path):
    kept = tmp_path / "kept" / "default"
    assert not any("replaces" in line for line in compared(machine(), collect=tmp_path / "kept")[1])
    (kept / "mine.txt").write_text("mine")
    (kept / "torch_compile_debug" / "empty").mkdir()
    other = machine()
    other.traced = "of another model"
    report, message = compared(other, ["freezing", "default"], collect=tmp_path / "kept")
    trace = "torch_compile_debug/run_2/ir_post_fusion.txt"
    assert texts(kept) == {"log.txt": "", "mine.txt": "mine", trace: "of another model"}
    assert (kept / "torch_compile_debug" / "empty").is_dir()
    note = f"default replaces what an earlier run collected in {kept}: log.txt, torch_compile_debug"
    assert note in report.notes
    assert note in message
    assert len([*(tmp_path / "kept" / "max-autotune").rglob("ir_*")]) == 1, "modes that were not run keep theirs"


@pytest.mark.parametrize("interrupted_in", ["reduce-overhead", "max-autotune"])
def test_an_interrupted_comparison_that_goes_on_keeps_the_traces_of_finished_modes(compared, tmp_path, interrupted_in):
    first = machine()
    first.interrupted_in = interrupted_in
    with pytest.raises(KeyboardInterrupt):
        compared(first, collect=tmp_path / "kept")
    done = texts(tmp_path / "kept")
    assert "default/torch_compile_debug/run_2/ir_post_fusion.txt" in done
    assert not (tmp_path / "kept" / interrupted_in).exists()
    again = machine()
    again.traced = "of the second run"
    _, message = compared(again, collect=tmp_path / "kept")
    result = texts(tmp_path / "kept")
    assert {name: result[name] for name in done} == done
    assert not any("replaces" in line for line in message)
    assert [text for name, text in result.items() if name.startswith(f"{interrupted_in}/torch")] == [
        "of the second run"
    ]


def test_a_run_that_does_not_resume_takes_nothing_of_an_interrupted_one(tmp_path):
    with run_folder(tmp_path, "KEY", resume=True) as result:
        result.keep(as_mode("default"), Loaded(calls_s=(1.0,)), ["a line"])
    with run_folder(tmp_path, "KEY", resume=True) as result:
        assert result.finished(as_mode("default")) == (Loaded(calls_s=(1.0,)), ["a line"])
        assert result.finished(as_mode("max-autotune")) is None
    with run_folder(tmp_path, "KEY", resume=False) as result:
        assert result.finished(as_mode("default")) is None


def test_what_is_kept_of_a_mode_and_damaged_is_a_warning(tmp_path, caplog):
    with run_folder(tmp_path, "KEY", resume=True) as result:
        result.keep(as_mode("default"), Loaded(calls_s=(1.0,)), [])
        (answer,) = result.path.glob("*.json")
        answer.write_text(answer.read_text().replace("1.0", "2.0"))
        assert result.finished(as_mode("default")) is None
    assert "its checksum is not that of its content" in caplog.text
    assert "an interrupted comparison will start from the beginning" in caplog.text


@pytest.mark.parametrize("changes", [{"recordings": -1}, {"peak_bytes": -1}, {"compile_s": -0.5}, {"calls_s": (-1.0,)}])
def test_what_is_kept_of_a_mode_with_a_number_that_cannot_be_is_a_warning(tmp_path, caplog, changes):
    with run_folder(tmp_path, "KEY", resume=True) as result:
        result.keep(as_mode("default"), replace(Loaded(calls_s=(1.0,)), **changes), [])
        assert result.finished(as_mode("default")) is None
    assert ">= 0" in caplog.text


def test_a_folder_that_cannot_take_what_is_collected_is_named(compared, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(compiled_files.NamedFile, "write", full)
    with pytest.raises(SettingsError, match=r"nothing can be collected in .*kept/default: no space left"):
        compared(machine(), collect=tmp_path / "kept")


def test_finished_modes_that_were_not_collected_are_compiled_again_to_be(compared, tmp_path):
    first = machine()
    first.interrupted_in = "max-autotune"
    with pytest.raises(KeyboardInterrupt):
        compared(first)
    compared(machine(), collect=tmp_path / "kept")
    assert len(list((tmp_path / "kept").rglob("ir_post_fusion.txt"))) == len(MODES)


@pytest.mark.parametrize(
    "name",
    ["log.txt", "collected.json", "torch_compile_debug/notes.md", "torch_compile_debug/run_2/ir_post_fusion.txt"],
)
@pytest.mark.parametrize("collected", [True, False])
def test_what_no_run_has_collected_is_not_removed(compared, tmp_path, name, collected):
    kept = tmp_path / "kept" / "default"
    if collected:
        compared(machine(), collect=tmp_path / "kept")
    (kept / name).parent.mkdir(parents=True, exist_ok=True)
    (kept / name).write_text("mine")
    before = {path: path.read_text() for path in kept.rglob("*") if path.is_file()}
    fake = machine()
    with pytest.raises(SettingsError, match="what a run has collected"):
        compared(fake, collect=tmp_path / "kept")
    assert fake.started == [], "before any work"
    assert {path: path.read_text() for path in kept.rglob("*") if path.is_file()} == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as a second user")
def test_nothing_is_collected_behind_a_link_that_another_user_planted(compared, tmp_path):
    folder, outside = tmp_path / "kept", tmp_path / "outside"
    folder.mkdir()
    folder.chmod(0o1777)
    outside.mkdir()
    (folder / "default").symlink_to(outside)
    os.chown(folder / "default", 65534, 65534, follow_symlinks=False)
    fake = machine()
    with pytest.raises(SettingsError, match="no list of what a run has collected: it is a link"):
        compared(fake, collect=folder)
    assert (fake.started, list(outside.iterdir())) == ([], [])


def test_collecting_follows_no_link_to_what_it_would_remove(compared, tmp_path):
    outside = tmp_path / "outside"
    compared(machine(), collect=outside)
    kept = tmp_path / "kept" / "default"
    kept.mkdir(parents=True)
    (kept / "collected.json").write_text((outside / "default" / "collected.json").read_text())
    (kept / "log.txt").symlink_to(outside / "default" / "log.txt")
    (kept / "torch_compile_debug").symlink_to(outside / "default" / "torch_compile_debug")
    before = texts(outside)
    with pytest.raises(SettingsError, match="is not what a run has collected"):
        compared(machine(), ["freezing", "default"], collect=tmp_path / "kept")
    assert texts(outside) == before


def test_compilers_have_folders_and_logs_of_their_own(compared, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_LOG", "inductor")
    fake = machine()
    compared(fake, ["eager", "default"], collect=tmp_path / "kept")
    eager, default, *_ = fake.started
    assert eager.environment == {}
    assert default.environment["TORCH_LOGS"] == "cudagraphs,perf_hints,recompiles"
    assert default.environment["TORCHINDUCTOR_CACHE_DIR"].startswith(str(tmp_path / "compile-modes"))
    assert default.environment["TORCH_COMPILE_DEBUG_DIR"].startswith(str(tmp_path / "compile-modes"))
    assert "TORCH_COMPILE_DEBUG" not in {*fake.started[-2].environment}, "the process that confirms leaves no traces"
    assert (tmp_path / "kept" / "default" / "log.txt").is_file()
    fake = machine()
    compared(fake, ["eager", "freezing"], warm=True)
    assert "TORCHINDUCTOR_CACHE_DIR" not in fake.started[1].environment


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as a second user")
def test_no_compiler_is_given_a_folder_that_another_user_has_made(compared, tmp_path, caplog):
    (tmp_path / "compile-modes").mkdir()
    os.chown(tmp_path / "compile-modes", 65534, 65534)
    fake = machine()
    compared(fake, ["eager", "default"])
    folders = {Path(each.environment["TORCHINDUCTOR_CACHE_DIR"]) for each in fake.started if each.environment}
    assert folders
    assert not any(each.is_relative_to(tmp_path) or each.exists() for each in folders)
    assert "keeps no compiled code" in caplog.text


def test_what_was_left_to_python_is_said_of_a_mode_and_not_of_eager(compared):
    report, _ = compared(machine())
    assert report.mode("eager").reason == ""
    assert report.mode("default").reason == "torch compiled nothing of it, so that it runs as it is"
    loaded = Loaded(calls_s=(1.0,), compile_s=1.0, label="a model", device_name="cpu", facts="f", graphs=3)
    assert left_to_python(loaded) == []
    assert left_to_python(replace(loaded, breaks=1)) == ["1 graph break: Python runs between compiled graphs"]
    assert left_to_python(replace(loaded, breaks=2)) == ["2 graph breaks: Python runs between compiled graphs"]
