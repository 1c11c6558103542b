"""Rules for every module: rooms with faces, no circles, short functions, one reader of the environment."""

import ast
import builtins
import compileall
import decimal
import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import tomllib

from triton_ops._faces import FACES, lazy_face
from triton_ops.exceptions import PACKAGES

PROJECT = Path(__file__).parents[2]
ROOT = PROJECT / "src"
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
FUNCTION_LINES = 60


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in FILES}


@cache
def trees():
    """Each module's syntax tree; made when a test asks, since every process that runs tests imports this file."""
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


@cache
def nodes():
    """All nodes of each module's tree."""
    return {name: [*ast.walk(tree)] for name, tree in trees().items()}


@pytest.fixture(scope="module", autouse=True)
def _no_tree_is_left():
    """The trees are 800,000 objects, among which every later search for garbage in this process would look."""
    yield
    for made in (trees, nodes, faces):
        made.cache_clear()


def is_put_off(block):
    """Tell a block whose imports are for type checkers, or made when a name is used."""
    return (isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)) or (
        isinstance(block, ast.With) and "lazy_face" in ast.unparse(block.items[0])
    )


def imports(name, *, for_checkers=False):
    """Modules of ours that a module imports, anywhere in it; those that are put off if that is asked for."""
    left_out = (
        set()
        if for_checkers
        else {id(node) for block in nodes()[name] if is_put_off(block) for node in ast.walk(block)}
    )
    result = set()
    for node in nodes()[name]:
        if id(node) in left_out:
            continue
        if isinstance(node, ast.Import):
            result.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} line {node.lineno}: relative import"
            # `from a import b` needs a, and a.b only if that is a module.
            result.add(node.module)
            result.update(f"{node.module}.{alias.name}" for alias in node.names)
    return (result & set(MODULES)) - {name}


def circle(graph):
    """The modules of some import circle, in order; empty if there is none."""
    done, path = set(), []

    def visit(name):
        if name in path:
            return path[path.index(name) :]
        if name in done:
            return []
        path.append(name)
        for other in sorted(graph[name]):
            if result := visit(other):
                return result
        path.pop()
        done.add(name)
        return []

    return next((result for name in sorted(graph) if (result := visit(name))), [])


def test_circles_are_found():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


@pytest.mark.processes
def test_no_import_circle_at_any_depth():
    assert circle({name: imports(name) for name in MODULES}) == []


@pytest.mark.processes
def test_no_file_needs_another_for_its_types_that_needs_it():
    """Faces are left out, since each names the files that import it."""
    files = {name for name, path in MODULES.items() if path.name != "__init__.py"}
    assert circle({name: imports(name, for_checkers=True) & files for name in files}) == []


ROOMS = {name for name, path in MODULES.items() if path.name == "__init__.py" and name.startswith("triton_ops.")}
FACED = {*ROOMS, *PACKAGES[1:]}
KNOW_FILES = {"triton_ops", "triton_ops.models", "triton_ops.validation"}
"""The public face, and two documented import paths, which name files of shipped kernels."""


def past_a_face(name, its_nodes):
    """Imports of a file of another room or package, and texts that name one for an import."""
    for node in its_nodes:
        named = node.module if isinstance(node, ast.ImportFrom) else None
        if isinstance(node, (ast.Constant, ast.JoinedStr)):
            text = ast.unparse(node).removeprefix("f") if isinstance(node, ast.JoinedStr) else str(node.value)
            text = text.strip("'\"")
            named = text if re.fullmatch(r"triton_ops\w*\.[\w.{}\[\]]+", text) else None
        faces = (face for face in FACED if named and f"{named}.".startswith(f"{face}.") and named != face)
        if any(not f"{name}.".startswith(f"{face}.") for face in faces):
            yield named


def test_imports_past_a_face_are_found():
    tree = ast.parse(
        "from triton_ops.space.walk import walk\nfrom triton_ops.space import Config\nx = 'triton_ops_lint.engine'"
    )
    past = ["triton_ops.space.walk", "triton_ops_lint.engine"]
    assert list(past_a_face("triton_ops.tuner.loop", ast.walk(tree))) == past
    assert list(past_a_face("triton_ops.space.config", ast.walk(tree))) == past[1:]
    assert list(past_a_face("triton_ops_lint.engine", ast.walk(tree))) == past[:1]


def test_rooms_import_faces_only():
    result = {
        (name, named)
        for name, its_nodes in nodes().items()
        if name not in KNOW_FILES
        for named in past_a_face(name, its_nodes)
    }
    assert result == set()


def is_kernel(function):
    return any("jit" in ast.unparse(decorator) for decorator in function.decorator_list)


def body_lines(function):
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def test_no_function_has_more_lines_than_the_limit():
    functions = [
        (name, node)
        for name, its_nodes in nodes().items()
        for node in its_nodes
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not is_kernel(node)
    ]
    assert [f"{name}.{f.name}: {body_lines(f)}" for name, f in functions if body_lines(f) > FUNCTION_LINES] == []


def test_only_settings_reads_the_environment():
    used = {
        name
        for name, its_nodes in nodes().items()
        for node in its_nodes
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv")
    }
    assert used == {"triton_ops.settings"}


OPENERS = {
    "open", "fdopen", "read_text", "read_bytes", "write_text", "write_bytes", "touch", "mkstemp", "mkdtemp",
    "NamedTemporaryFile", "TemporaryFile", "TemporaryDirectory", "FileLock", "GzipFile",
}  # fmt: skip
OPEN_THEMSELVES = {
    "triton_ops.timing.timer": "the kernel's own counters of a thread",
    "triton_ops.device.probing": "the kernel's own files of memory and of processors",
    "triton_ops.terminal.page": "what this package brings, in an archive too",
    "triton_ops.base.host": "the kernel's own files of processes, and of limits",
    "triton_ops.processes.child": "the kernel's own file of a process, a file without a name, and bytecode",
    "triton_ops.backend.offline": "a file that Triton reads by name",
    "triton_ops.backend.triton_compiler": "a file that nvdisasm reads by name",
    "triton_ops.backend.origins": "installers' lists beside modules that Python imports",
    "triton_ops.ship.verification": "a folder for one tune",
    "triton_ops.records.sources": "what a URL serves",
    "triton_ops.processes.confined": "the kernel's own file of this process",
    "triton_ops.cli.tour": "a new folder, which stays with its user",
    "triton_ops_torch.backends": "torch's own sources",
    "triton_ops_torch.compiled_files": "entries of a folder that is open, so that no link is followed",
    "triton_ops_torch.call_profile": "the kernel's own files of a process",
    "triton_ops_lab.recording": "a folder for one tune, and gzip in memory",
    "triton_ops.terminal.console": "the null device",
}


FILE_ROOM = {f"triton_ops.base.{name}" for name in ("code_folders", "files", "folders")}


def test_files_are_opened_in_one_place():
    """Whoever opens a file elsewhere would follow a planted link, or wait for a FIFO."""
    used = {
        name
        for name, its_nodes in nodes().items()
        for node in its_nodes
        if isinstance(node, ast.Call)
        and (node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")) in OPENERS
    }
    assert used - FILE_ROOM == set(OPEN_THEMSELVES)


def test_locks_of_modules_and_classes_are_free_in_a_forked_child():
    """Another thread may hold one during a fork; `ForkSafeLock` takes the function that makes the lock.

    That of `_faces`, which imports nothing of ours, is taken by whoever forks, as a test below shows.
    """
    bodies = [
        (name, node.body)
        for name, its_nodes in nodes().items()
        for node in its_nodes
        if isinstance(node, (ast.Module, ast.ClassDef))
    ]
    calls = {
        (name, ast.unparse(call))
        for name, body in bodies
        for statement in body
        if isinstance(statement, (ast.Assign, ast.AnnAssign))
        for call in ast.walk(statement)
        if isinstance(call, ast.Call)
    }
    locks = {call for call in calls if re.fullmatch(r"(threading\.)?(R?Lock|Condition|Semaphore)\(\)", call[1])}
    assert locks == {("triton_ops._faces", "threading.RLock()")}


def test_every_module_has_a_docstring_that_says_what_it_holds():
    docs = {name: ast.get_docstring(tree) or "" for name, tree in trees().items()}
    assert [name for name, doc in docs.items() if len(doc) <= 15] == []


@cache
def faces():
    """For each face the module of each name, by its imports `from module import name as name`."""
    imported = {name: [node for node in nodes()[name] if isinstance(node, ast.ImportFrom)] for name in MODULES}
    return {
        module: {alias.name: node.module for node in imported[module] for alias in node.names if alias.asname}
        for module, path in MODULES.items()
        if path.name == "__init__.py"
    }


def test_a_face_shows_the_names_that_it_imports():
    with_names = {package: names for package, names in faces().items() if names}
    for package in with_names:
        import_module(package)
    assert {package: FACES[package] for package in with_names} == with_names
    assert all(sys.modules[package].__all__ == sorted(names) for package, names in with_names.items())


@pytest.fixture
def face():
    """A module that notes names in a block, and then no more."""
    module = ModuleType("noted_face")
    sys.modules["noted_face"] = module
    yield module
    del sys.modules["noted_face"], FACES["noted_face"]


def test_only_the_imports_of_a_face_are_put_off(face):
    """Those of others inside of its block, such as of another thread, are made at once."""
    before = builtins.__import__
    with lazy_face("noted_face"):
        exec("from decimal import Decimal as Decimal\nfrom nowhere import ghost as ghost", vars(face))
        exec("from decimal import Decimal as Decimal", others := {})
    assert builtins.__import__ is before
    assert others["Decimal"] is face.Decimal is decimal.Decimal
    assert FACES["noted_face"] == {"Decimal": "decimal", "ghost": "nowhere"}
    assert face.__all__ == ["Decimal", "ghost"]
    with pytest.raises(AttributeError, match="'noted_face' has no attribute 'phantom'"):
        _ = face.phantom


def test_a_face_whose_block_raises_leaves_import_as_it_was(face):
    before = builtins.__import__
    with pytest.raises(ZeroDivisionError), lazy_face("noted_face"):
        _ = 1 / 0
    assert builtins.__import__ is before


@pytest.mark.processes
def test_a_fork_waits_for_a_face_of_another_thread():
    """The child has Python's own import statement, and may import a face."""
    script = (
        "import builtins, os, threading, sys, triton_ops\nfrom triton_ops._faces import lazy_face\n"
        "own, inside, goes_on = builtins.__import__, threading.Event(), threading.Event()\n"
        "def noting():\n    with lazy_face('__main__'):\n        inside.set(); goes_on.wait(10)\n"
        "thread = threading.Thread(target=noting); thread.start(); inside.wait(10)\n"
        "threading.Timer(0.2, goes_on.set).start()\npid = os.fork()\n"
        "if not pid:\n    from triton_ops.device import Target\n"
        "    os._exit(0 if builtins.__import__ is own and goes_on.is_set() else 1)\n"
        "thread.join(); sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.processes
def test_the_package_works_without_its_sources(tmp_path):
    """As where it is packed into a program that has compiled files alone."""
    shutil.copytree(ROOT / "triton_ops", tmp_path / "triton_ops", ignore=shutil.ignore_patterns("__pycache__"))
    assert compileall.compile_dir(tmp_path, quiet=1, legacy=True)
    for path in tmp_path.rglob("*.py"):
        path.unlink()
    script = (
        "import triton_ops; assert triton_ops.__file__.endswith('.pyc'); "
        "print(triton_ops.recall.__name__, len(dir(triton_ops)) > 100, triton_ops.Config(BLOCK=64))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "recall True BLOCK=64\n")


def modules_after(code):
    script = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    message = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    return set(json.loads(message.stdout))


@pytest.mark.processes
def test_importing_the_package_loads_nothing_heavy():
    loaded = modules_after("import triton_ops; triton_ops.__version__; dir(triton_ops)")
    heavy = {"torch", "triton", "numpy", "rich", "typer", "msgspec", "filelock", "platformdirs"}
    assert not heavy & loaded
    assert {name for name in loaded if name.startswith("triton_ops")} == {"triton_ops", "triton_ops._faces"}


@pytest.mark.processes
def test_a_launch_from_a_record_imports_little():
    """Each of these takes milliseconds, and what needs it imports it on first use."""
    loaded = modules_after("from triton_ops import recall")
    slow = {
        "cloudpickle",
        "ctypes",
        "difflib",
        "logging",
        "platformdirs",
        "random",
        "statistics",
        "subprocess",
        "tempfile",
        "triton_ops.space.tunable",
        "triton_ops.values.buckets",
        "triton_ops.values.tolerance",
        "triton_ops.values.trial",
    }
    assert not slow & loaded


def home_of(module, name):
    """The module that has a name, past the faces that show it."""
    while f"{module}.{name}" not in MODULES and name in faces().get(module, {}):
        module = faces()[module][name]
    return f"{module}.{name}" if f"{module}.{name}" in MODULES else module


def reached(*names):
    """The modules that the use of public names needs: all imports count, also for type checkers, name by name."""
    modules, queue = set(), [home_of("triton_ops", name) for name in names]
    while queue:
        if (module := queue.pop()) in modules or module not in MODULES:
            continue
        modules.add(module)
        if module not in faces():
            imported = [node for node in nodes()[module] if isinstance(node, ast.ImportFrom)]
            queue += [home_of(node.module, alias.name) for node in imported for alias in node.names]
    return modules


def lines_of(modules):
    return sum(len(MODULES[name].read_text(encoding="utf-8").splitlines()) for name in modules)


LAUNCH = ("autotune", "use_lockfile")


def test_a_launch_reaches_few_files():
    modules = reached(*LAUNCH)
    assert len(modules) <= 70
    assert lines_of(modules) <= 24_000


@pytest.mark.processes
def test_a_launch_from_a_lockfile_imports_what_it_reaches():
    """Faces hold nothing but names, and are imported with each file behind them."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.launched_from_lockfile"], cwd=PROJECT, check=True, capture_output=True, text=True
    )
    loaded = set(json.loads(done.stdout))
    assert loaded - faces().keys() == reached(*LAUNCH) - faces().keys()
    assert lines_of(loaded) <= 24_000


def test_the_contract_on_launches_is_on_all_that_a_launch_reaches():
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (contract,) = (each for each in settings["contracts"] if each["name"].startswith("A launch"))
    sources = contract["source_modules"]
    outside = {name for name in reached(*LAUNCH) if not any(f"{name}.".startswith(f"{one}.") for one in sources)}
    assert outside <= {"triton_ops._faces", *faces()}


@pytest.mark.processes
@pytest.mark.parametrize("part", ["space", "values.tensors", "values.trial", "search", "records", "exceptions"])
def test_the_core_needs_no_gpu_stack(part):
    assert not {"torch", "triton"} & modules_after(f"import triton_ops.{part}")


@pytest.mark.processes
def test_floors():
    """Held by import-linter with the contracts of pyproject.toml."""
    code = "from importlinter.cli import lint_imports_command as main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "--no-logo", "--no-cache"],
        cwd=PROJECT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_tests_stand_in_folders_named_like_rooms():
    """Beside them stand tests of other packages, of several packages, of the scripts that measure, and of all."""
    folders = {path.parent.name for path in (PROJECT / "tests" / "cpu").glob("*/test_*.py")}
    packages = {name.removeprefix("triton_ops_") for name in PACKAGES[1:]}
    assert folders - {"benchmarks", "serving", "together"} - packages <= {
        name.split(".")[1] for name in MODULES if "." in name
    }
    assert packages <= folders
    assert len(list((PROJECT / "tests" / "cpu").glob("test_*.py"))) <= 10
