"""A file is data: whatever a record, a lockfile, a list of misses or of problems names, none of its code is run."""

import importlib
import json
import os
import stat
import sys
import tempfile
from pathlib import Path

import pytest

import triton_ops
from triton_ops import operation
from triton_ops.backend import CompilerNeeds, Operation
from triton_ops.base import TemporaryFolder
from triton_ops.base import code_folders as private
from triton_ops.cli.app import main
from triton_ops.device import probe
from triton_ops.exceptions import CacheError, NotLoadedError
from triton_ops.processes.child import environment
from triton_ops.records import Lockfile, LockPlan, Record, Timing, lock_of, store_in
from triton_ops.records.misses import Harvest
from triton_ops.ship import as_target, load_kernels, prepare
from triton_ops.ship.targets import Targets, kernel_in
from triton_ops.space import Config
from triton_ops.values import Key, Problem

MARK = Path("mark")
EVIL = "from pathlib import Path\nPath('mark').touch()\ndef run(path, config='x'):\n    Path(path).touch()\n"


def touch(path, config="x"):
    """A function of a module that this process has imported, and that nothing has declared as a kernel."""
    Path(path).touch()


class Holder:
    touch = staticmethod(touch)


# What a file may name: the name of a kernel, its problem and its config
NAMES = {
    "Python's own": ("subprocess:getoutput", {"cmd": "touch mark"}, {"encoding": "utf-8"}),
    "Python's own, by dots": ("os:path.os.system", {"command": "touch mark"}, {}),
    "a builtin": ("builtins:exec", {"source": "open('mark', 'w')"}, {}),
    "a file": ("evil.py:run", {"path": "mark"}, {"config": "x"}),
    "a module of the current folder": ("evil:run", {"path": "mark"}, {"config": "x"}),
    "a module of the current folder alone": ("evil", {"path": "mark"}, {"config": "x"}),
    "a package of the current folder": ("planted.evil:run", {"path": "mark"}, {"config": "x"}),
    "an imported function": (f"{__name__}:touch", {"path": "mark"}, {"config": "x"}),
    "an imported function, by dots": (f"{__name__}:Holder.touch", {"path": "mark"}, {"config": "x"}),
    "a function of an installed package": ("_pytest.pathlib:_force_symlink", {}, {}),
    "a member of this package": ("triton_ops.cli.app:main", {}, {"arguments": "tune evil.py:run"}),
    "a shipped kernel's module": ("triton_ops_kernels:load", {"name": "evil"}, {}),
    "a late import": ("lazy:evil", {"path": "mark"}, {}),
    "a program": ("__main__:run", {"path": "mark"}, {}),
}
COMMANDS = {
    "verify": ["lock", "verify", "lock.json", "--device", "cpu"],
    "verify --static": ["lock", "verify", "lock.json", "--static"],
    "verify --kernel": ["lock", "verify", "lock.json", "--kernel", "NAME", "--device", "cpu"],
    "verify --kernels": ["lock", "verify", "lock.json", "--kernels", "own.py", "--device", "cpu"],
    "tune --from-misses": ["tune", "--from-misses", "--inline"],
    "tune --from-misses --isolate": ["tune", "--from-misses", "--isolate"],
    "tune TARGET --from-misses": ["tune", "own.py:fine", "--from-misses", "--inline"],
    "show": ["cache", "show", "--json"],
    "keys": ["lock", "keys"],
    "report": ["report", "NAME", "-o", "report.html"],
    "portfolio": ["lock", "portfolio", "NAME"],
    "misses": ["cache", "misses"],
    "why FILE": ["why", "lock.json"],
    "export": ["exchange", "export", "vllm-moe", ".", "--lockfile", "lock.json", "--kernel", "NAME", "--row", "path"],
    "lock --check": ["lock", "--check", "--lockfile", "lock.json"],
}
NOT_LOADED = {"verify", "verify --static", "verify --kernel", "verify --kernels", "tune --from-misses"}


class Lazy(type(sys)):
    """A module that imports a part of itself when that is asked for, as large packages do."""

    def __getattr__(self, name):
        if name != "evil":
            raise AttributeError(name)
        MARK.touch()
        return touch


def record_of(name, problem, config):
    module, _, path = name.partition(":")
    function = sys.modules.get(module)
    for part in path.split(".") if path else ():
        function = getattr(function, part, None)
    kernel = kernel_in(as_target(function)) if callable(function) else None
    identity = {} if kernel is None else kernel.identity
    key = Key.of(Problem(name, tuple(problem.items())), identity, probe("cpu"))
    return Record(key=key, winner=Config(config), timing=Timing(1.0, 1.0, 1.0, 3))


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with the files that attack, in which nothing has been run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("planted").mkdir()
    for path in ("evil.py", "planted/__init__.py", "planted/evil.py"):
        Path(path).write_text(EVIL)
    Path("own.py").write_text(
        "from triton_ops import operation\n"
        "import subprocess\n"
        "def plain(n, step=1):\n    open('mark', 'w')\n"
        "@operation(space={'step': [1, 2]}, arguments=lambda n=64: {'n': n})\n"
        "def fine(n, step):\n    return n\n"
    )
    yield tmp_path
    for name in ("evil", "planted", "planted.evil", "own"):
        sys.modules.pop(name, None)


@pytest.fixture
def planted(here, monkeypatch):
    """The files of an attack: records, their lockfile, their misses, and a list of problems; gives the records."""
    records = [record_of(*each) for each in NAMES.values()]
    monkeypatch.setitem(sys.modules, "lazy", Lazy("lazy"))
    harvest = Harvest(Path("cache"))
    for record in records:
        store_in(str(here / "cache")).put(record)
        harvest.note(record.key)
    harvest.flush()
    lock_of(records, LockPlan())[0].write("lock.json")
    return records


def assert_nothing_ran():
    assert not MARK.exists()
    assert not {"evil", "planted", "planted.evil"} & sys.modules.keys()


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_runs_what_a_file_names(command):
    words = COMMANDS[command]
    names = [name for name, _, _ in NAMES.values() if ".py:" not in name] if "NAME" in words else [""]
    codes = {main([name if word == "NAME" else word for word in words]) for name in names}
    assert_nothing_ran()
    if command in NOT_LOADED:
        assert codes == {6}


@pytest.mark.usefixtures("planted")
def test_each_entry_that_is_not_loaded_is_told(capsys):
    assert main(["lock", "verify", "lock.json", "--static", "--json"]) == 6
    told = json.loads(capsys.readouterr().out)["items"]
    assert [(each["entry"]["kernel"], each["outcome"]) for each in told] == [
        (name, "not loaded") for name in sorted(name for name, _, _ in NAMES.values())
    ]
    assert main(["lock", "verify", "lock.json", "--static"]) == 6
    assert f"{len(NAMES)} entries: {len(NAMES)} not loaded" in capsys.readouterr().out
    assert main(["tune", "--from-misses", "--json"]) == 6
    assert {each["outcome"] for each in json.loads(capsys.readouterr().out)["items"]} == {"not loaded"}


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("named", NAMES)
def test_a_list_of_problems_runs_nothing_that_is_not_named_beside_it(named, capsys):
    Path("list.txt").write_text(json.dumps({"target": NAMES[named][0]}))
    code = main(["tune", "--problems", "list.txt", "--kernels", "own.py", "--inline"])
    assert_nothing_ran()
    said = capsys.readouterr().err
    if ":" not in NAMES[named][0] and not Operation.shipped_names():  # where the package of shipped kernels is missing
        assert (code, "triton_ops_kernels, which is not installed" in said) == (3, True)
    else:
        assert (code, "list.txt, line 1: " in said) == (6 if ":" in NAMES[named][0] else 2, True)


@pytest.mark.usefixtures("planted")
def test_a_record_that_is_locked_and_verified_runs_nothing(capsys):
    assert main(["lock", "--lockfile", "chain.json"]) == 0
    assert main(["lock", "verify", "chain.json", "--device", "cpu"]) == 6
    assert main(["lock", "--refresh", "--lockfile", "chain.json"]) == 0
    assert main(["lock", "verify", "chain.json", "--static"]) == 6
    assert_nothing_ran()


def test_no_function_runs_what_a_file_names(planted):
    lock = Lockfile.read("lock.json")
    assert len(prepare(lock, device="cpu").failed) == len(NAMES)
    targets = Targets()
    for record in planted:
        for find in (targets.find, targets.decorated):
            with pytest.raises(NotLoadedError):
                find(record.key.kernel)
    triton_ops.use_lockfile("lock.json")
    triton_ops.use_lockfile(None)
    assert_nothing_ran()


@operation(space={"step": [1, 2]}, arguments=lambda n=64: {"n": n})
def declared(n, step):
    return n // step


also_called = declared


def test_what_a_module_of_this_process_declares_is_found_by_its_own_name_alone():
    assert Targets().find(f"{__name__}:declared") is declared
    with pytest.raises(NotLoadedError):
        Targets().find(f"{__name__}:also_called")


def test_a_value_of_a_config_makes_no_module_import_a_part_of_itself(here, monkeypatch):
    monkeypatch.setitem(sys.modules, "lazy", Lazy("lazy"))
    config = Config({"how": "lazy:evil.FAST", "of": "lazy:evil.evil.FAST"})
    assert config.with_named_members() is config
    assert_nothing_ran()


@pytest.mark.usefixtures("here")
def test_a_kernel_that_two_files_have_is_loaded_once(capsys):
    Path("first.py").write_text(Path("own.py").read_text())
    Path("second.py").write_text("from first import fine\n")
    assert list(load_kernels(["first.py", "second.py"])) == ["first.py:fine"]
    assert main(["tune", "--from-misses", "--kernels", "first.py", "--kernels", "second.py"]) == 0
    for name in ("first", "second"):
        sys.modules.pop(name)


def test_a_kernel_of_a_program_is_told_apart():
    with pytest.raises(NotLoadedError, match="define it in a module"):
        Targets().find("__main__:run")


def test_kernels_are_loaded_from_a_file_a_module_or_one_by_one(capsys, monkeypatch, here):
    """A function counts where it is named itself, and not with its file."""
    monkeypatch.syspath_prepend(here)
    importlib.import_module("own")

    lock_of([record_of("own:fine", {"n": 64}, {"step": 1})], LockPlan())[0].write("fine.json")
    lock_of([record_of("own:plain", {"n": 64}, {"step": 1})], LockPlan())[0].write("plain.json")
    words = ["--static", "--json"]
    for path, named, outcome in (
        ("fine.json", "own.py", "not measured"),
        ("fine.json", "own", "not measured"),
        ("fine.json", "own.py:fine", "not measured"),
        ("plain.json", "own.py", "not loaded"),
        ("plain.json", "own.py:plain", "not measured"),
    ):
        sys.modules.pop("own", None)
        assert main(["lock", "verify", path, *words, "--kernels", named]) == (6 if outcome == "not loaded" else 0)
        assert json.loads(capsys.readouterr().out)["items"][0]["outcome"] == outcome


# Folders of compiled code

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as a second user")
NOBODY = 65534


def folder_of_everybody(path):
    path.mkdir()
    path.chmod(0o1777)
    return path


def planted_by_link(place, victim):
    place.symlink_to(victim)
    os.chown(place, NOBODY, NOBODY, follow_symlinks=False)


@root_only
def test_without_any_folder_of_its_own_no_process_is_started(home, tmp_path, monkeypatch):
    for path in (home, tmp_path / "tmp"):
        os.chown(path, NOBODY, NOBODY)
    monkeypatch.setattr(private, "_own_temporary", TemporaryFolder.own)
    with pytest.raises(CacheError, match="no folder for compiled code that only this user can write"):
        environment({}, "mark")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder of this user, whose caches are in their usual places."""
    for name in ("XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TRITON_HOME", "TORCHINDUCTOR_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    home.mkdir(0o700)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(tempfile, "tempdir", str(folder_of_everybody(tmp_path / "tmp")))
    return home


VARIABLES = {"TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor"}


def test_children_keep_code_where_triton_and_torch_keep_it(home, tmp_path):
    result = environment({}, "mark")
    assert result["TRITON_CACHE_DIR"] == str(home / ".triton" / "cache")
    inductor = Path(result["TORCHINDUCTOR_CACHE_DIR"])
    assert (inductor.parent, inductor.stat().st_uid) == (tmp_path / "tmp", os.getuid())
    assert stat.S_IMODE(inductor.stat().st_mode) == 0o700, "another user could have made it first"
    assert not list(home.iterdir()), "a folder that nobody else can make need not be there"
    inductor.chmod(0o755)
    assert environment({}, "mark") == result


@root_only
@pytest.mark.parametrize("how", ["open", "sticky", "owned", "link", "above", "group"])
@pytest.mark.parametrize("variable", VARIABLES)
def test_children_load_no_code_that_another_user_could_have_written(home, tmp_path, monkeypatch, caplog, variable, how):
    place = tmp_path / "chosen"
    place.mkdir()
    monkeypatch.setenv(variable, str(place))
    if how in ("open", "sticky", "group"):
        place.chmod({"open": 0o777, "sticky": 0o1777, "group": 0o775}[how])
    if how in ("owned", "group"):
        os.chown(place, NOBODY if how == "owned" else 0, NOBODY)
    if how == "link":
        link = folder_of_everybody(tmp_path / "all") / "link"
        planted_by_link(link, place)
        monkeypatch.setenv(variable, str(link))
    if how == "above":
        (place / "in").mkdir()
        place.chmod(0o777)
        monkeypatch.setenv(variable, str(place / "in"))
    for _ in range(2):
        used = Path(environment({}, "mark")[variable])
        assert used == home / ".cache" / "triton-ops-code" / VARIABLES[variable]
        assert stat.S_IMODE(used.stat().st_mode) == 0o700
    assert [str(tmp_path) in each.getMessage() for each in caplog.records] == [True]
    os.chown(home, NOBODY, NOBODY)
    assert home not in Path(environment({}, "mark")[variable]).parents


@root_only
def test_a_command_loads_no_code_that_another_user_could_have_written(home, tmp_path, monkeypatch):
    for variable in VARIABLES:
        monkeypatch.setenv(variable, str(folder_of_everybody(tmp_path / variable)))
    Path(tmp_path / "told.py").write_text(
        "import os\nfrom pathlib import Path\n"
        "def work(step=1):\n"
        "    names = ('TRITON_CACHE_DIR', 'TORCHINDUCTOR_CACHE_DIR')\n"
        f"    Path({str(tmp_path / 'told')!r}).write_text(' '.join(map(os.environ.get, names)))\n"
    )
    words = ["tune", f"{tmp_path / 'told.py'}:work", "--space", "step=1", "--device", "cpu", "--inline"]
    assert main([*words, "--cache-dir", str(tmp_path / "records")]) == 0
    own = home / ".cache" / "triton-ops-code"
    assert (tmp_path / "told").read_text().split() == [str(own / part) for part in VARIABLES.values()]
    sys.modules.pop("told")


@pytest.mark.processes
@root_only
def test_a_worker_is_told_folders_that_are_its_users_own(home, tmp_path, monkeypatch):
    for variable in VARIABLES:
        monkeypatch.setenv(variable, str(folder_of_everybody(tmp_path / variable)))
    told = tmp_path / "told"

    def work(config="x"):
        told.write_text(json.dumps({name: os.environ.get(name) for name in VARIABLES}))

    triton_ops.tune(work, space={"config": ["x"]}, device="cpu", isolate=True, cache_dir=tmp_path / "records")
    own = home / ".cache" / "triton-ops-code"
    assert json.loads(told.read_text()) == {name: str(own / part) for name, part in VARIABLES.items()}


@pytest.mark.triton
@root_only
def test_compilers_keep_nothing_where_another_user_could_replace_it(home, tmp_path, monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder_of_everybody(tmp_path / "chosen")))
    own = home / ".cache" / "triton-ops-code" / "triton"
    assert CompilerNeeds.environment()["TRITON_CACHE_DIR"] == str(own)
