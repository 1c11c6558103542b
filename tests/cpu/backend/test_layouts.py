"""Packages where no installer's folder is: what is sent of a kernel to the processes that compile it."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import cloudpickle
import pytest

from triton_ops import base
from triton_ops.backend import Origin, Packed
from triton_ops.backend import callables as toolchain
from triton_ops.backend.origins import NEEDS, is_users_path
from triton_ops.many.ray_engine import _modules_in

triton = pytest.importorskip("triton")

pytestmark = pytest.mark.triton

LIBRARY = """
    import triton

    __version__ = "1.5"

    @triton.jit
    def doubled(x):
        return x * 2

    def blocks(n, block):
        return (triton.cdiv(n, block),)
"""
USERS = """
    import library
    import triton
    import triton.language as tl
    from triton_ops import TritonKernel

    OFFSET = tl.constexpr(3)

    @triton.jit
    def kernel(x, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, library.doubled(tl.load(x + at, mask=at < n)) + OFFSET, mask=at < n)

    def grid(meta):
        return library.blocks(meta["n"], meta["BLOCK"])

    KERNEL = TritonKernel(kernel, grid, outputs=("out",))
"""
SENDS = """
    import json, pickletools, sys
    import cloudpickle
    from triton_ops.backend import Arguments
    from triton_ops.backend import TritonCompiler
    from triton_ops.backend import Packed, callables as toolchain
    from triton_ops.compilation import CompilePool
    from triton_ops.device import Target
    from triton_ops.space import Config
    from triton_ops.values import TensorSpec

    HERE
    x = TensorSpec((1000,), "float32")
    ahead = TritonCompiler(users.KERNEL, Arguments(keyword={"x": x, "out": x, "n": 1000}), Target.named("sm_90"))
    packed = Packed.of(users.KERNEL, by_value=True)
    words = {word for _, word, _ in pickletools.genops(packed.content) if isinstance(word, str)}
    told = {"bytes": len(packed.content), "imports": sorted(packed.imports), "cloudpickle": cloudpickle.__file__,
            "library": users.KERNEL.identity.get("library")}
    if sys.argv[1:] == ["compile"]:
        with CompilePool(ahead, workers=1) as pool:
            compiled = pool.submit(Config(BLOCK=128)).result()
        told["compiled"] = [compiled.status.name, compiled.reason]
    else:
        ahead.pack().load()
    print(json.dumps(told))
"""


def write(folder, **texts):
    """Modules in a folder, which is returned; a name with `__` is that of a file in a package."""
    for name, text in texts.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return folder


def installed(folder, name, *files):
    """The facts that an installer leaves of a package, with the list of its files."""
    facts = folder / f"{name}-1.5.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
    (facts / "RECORD").write_text("".join(f"{file},sha256=x,1\n" for file in files))


def pickler(folder, *, listed=True):
    """Put cloudpickle into a folder, with the facts that pip leaves or without."""
    shutil.copytree(Path(cloudpickle.__file__).parent, folder / "cloudpickle")
    if listed:
        installed(folder, "cloudpickle", "cloudpickle/__init__.py", "cloudpickle/cloudpickle.py")
    return folder


def zipped(folder, archive):
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(folder.rglob("*")):
            file.write(path, path.relative_to(folder))
    shutil.rmtree(folder)
    return archive


def target(tmp_path):
    place = pickler(write(tmp_path / "deps", library=LIBRARY))
    installed(place, "library", "library.py")
    return [write(tmp_path / "app", users=USERS), place], "import users"


def in_one_folder(tmp_path):
    place = pickler(write(tmp_path / "function", library__init=LIBRARY, users=USERS))
    (place / "library" / "init.py").rename(place / "library" / "__init__.py")
    installed(place, "library", "library/__init__.py")
    return [place], "import users"


def archive(tmp_path):
    target(tmp_path)
    return [tmp_path / "app", zipped(tmp_path / "deps", tmp_path / "app.pyz")], "import users"


def all_in_one_archive(tmp_path):
    (place,), load = in_one_folder(tmp_path)
    return [zipped(place, tmp_path / "library-1.5-py3-none-any.whl")], load


def on_the_way_up(tmp_path):
    target(tmp_path)
    return [tmp_path / "app", f"{tmp_path}/app/../deps"], "import users"


def in_a_namespace(tmp_path, folder="deps"):
    place = pickler(write(tmp_path / folder, shared__library=LIBRARY))
    installed(place, "library", "shared/library.py")
    users = USERS.replace("import library", "from shared import library")
    return [write(tmp_path / "app", shared__users=users), place], "from shared import users"


def vendored(tmp_path):
    place = write(tmp_path / "app", users=USERS, users_vendor__library=LIBRARY)
    pickler(place / "users_vendor", listed=False)
    return [place, place / "users_vendor"], "import users"


def vendored_in_a_package(tmp_path):
    users = USERS.replace("import library", "from package._vendor import library")
    place = write(tmp_path / "app", package__users=users, package___vendor__library=LIBRARY)
    pickler(place / "package" / "_vendor", listed=False)
    return [place], "from package import users"


def to_be_edited(tmp_path):
    project = write(tmp_path / "project" / "src", library=LIBRARY, users=USERS)
    for name in ("library", "users"):
        facts = project / f"{name}.egg-info"
        facts.mkdir()
        (facts / "SOURCES.txt").write_text(f"src/{name}.py\n{name}.py\n")
        (facts / "top_level.txt").write_text(f"{name}\n")
    site = pickler(tmp_path / "deps")
    installed(site, "users", "__editable__.users-1.5.pth", "users-1.5.dist-info/RECORD")
    return [project, site], "import users"


def gone_from_the_path(tmp_path):
    places, load = target(tmp_path)
    return places, f"{load}\nsys.path.remove({str(tmp_path / 'deps')!r})"


def a_namespace_that_is_gone(tmp_path):
    places, load = in_a_namespace(tmp_path, "site-packages")
    return places, f"{load}\nsys.path.remove({str(places[1])!r})"


def under_another_name(tmp_path):
    places, _ = target(tmp_path)
    load = """
        from importlib.util import module_from_spec, spec_from_file_location
        spec = spec_from_file_location("other", FILE)
        sys.modules["other"] = sys.modules["library"] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules["other"])
        import users
    """
    return places, textwrap.dedent(load).replace("FILE", repr(str(tmp_path / "deps" / "library.py")))


def unreadable(tmp_path):
    places, load = target(tmp_path)
    (tmp_path / "deps" / "library-1.5.dist-info" / "RECORD").write_bytes(b"library.py,\xff\n")
    return places, load


def sent(tmp_path, layout, *words):
    """What a process that finds packages in a layout tells of what it sends."""
    places, load = layout(tmp_path)
    script = tmp_path / "sends.py"
    script.write_text(textwrap.dedent(SENDS).replace("HERE", load))
    path = os.pathsep.join([*map(str, places), *(entry for entry in sys.path if entry)])
    done = subprocess.run(
        [sys.executable, str(script), *words], env={**os.environ, "PYTHONPATH": path}, capture_output=True,
        text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


BY_NAME = [target, in_one_folder, archive, all_in_one_archive, on_the_way_up, in_a_namespace]
COMPILED = [all_in_one_archive, vendored]
BY_VALUE = [
    vendored, vendored_in_a_package, to_be_edited, gone_from_the_path, a_namespace_that_is_gone, under_another_name,
    unreadable,
]  # fmt: skip


@pytest.mark.processes
@pytest.mark.parametrize("layout", [*BY_NAME, *BY_VALUE], ids=lambda layout: layout.__name__)
def test_what_an_installer_lists_goes_by_name_and_all_else_by_value(tmp_path, layout):
    told = sent(tmp_path, layout)
    if layout is not vendored_in_a_package:
        assert told["cloudpickle"].startswith(str(tmp_path)), "it is the one of the layout"
    imported = set(told["imports"]) - {"builtins", "cloudpickle", "triton", "triton_ops"}
    assert imported == ({"shared" if layout is in_a_namespace else "library"} if layout in BY_NAME else set())
    assert told["bytes"] < 8000
    if layout not in (in_a_namespace, a_namespace_that_is_gone):  # such a package tells no version
        assert told["library"] == ("1.5" if layout in BY_NAME else None)


def test_a_package_is_found_by_its_list_with_and_without_source(tmp_path, monkeypatch):
    (place, folder), _ = target(tmp_path)
    monkeypatch.setattr(sys, "path", [str(place), str(folder)])
    assert not is_users_path(str(folder / "library.py"))
    assert not is_users_path(str(folder / "library.pyc"))
    assert is_users_path(str(folder / "other.py"))
    assert is_users_path(str(place / "users.py"))


def test_a_copy_of_triton_that_no_installer_made_tells_its_own_version(monkeypatch):
    def unknown(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", unknown)
    toolchain.installed_version.cache_clear()
    try:
        assert toolchain.toolchain()["triton"] == triton.__version__
    finally:
        toolchain.installed_version.cache_clear()


def test_a_build_of_triton_is_named_unless_it_is_a_release_as_it_was_published(monkeypatch):
    for is_published in (False, True):
        toolchain._build.cache_clear()
        monkeypatch.setattr(toolchain, "is_as_published", {"triton": is_published}.get)
        told = toolchain.toolchain()
        assert ("triton build" in told, told["triton"]) == (not is_published, triton.__version__)
    toolchain._build.cache_clear()


CHANGES = {
    "nothing": lambda _: None,
    "a file of Python": lambda place: (place / "planted/__init__.py").write_text("A = 2\n"),
    "a library": lambda place: (place / "planted/lib.so").write_bytes(b"longer"),
    "a file is gone": lambda place: (place / "planted/lib.so").unlink(),
    "bytecode": lambda place: (place / "planted/__init__.pyc").write_bytes(b"new"),
    "a script": lambda place: (place / "script").write_text("other"),
    "from a folder": lambda place: (place / "planted-1.0.dist-info/direct_url.json").write_text("{}"),
    "no list": lambda place: (place / "planted-1.0.dist-info/RECORD").unlink(),
    "no installer": lambda place: shutil.rmtree(place / "planted-1.0.dist-info"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_package_is_as_published_while_its_files_are_as_its_installer_noted(change, tmp_path, monkeypatch):
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted-1.0.dist-info").mkdir()
    files = {"planted/__init__.py": b"A = 1\n", "planted/lib.so": b"short", "script": b"own"}
    rows = ["planted-1.0.dist-info/RECORD,,", "planted/__init__.pyc,,"]
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(content)}")
    (tmp_path / "planted-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
    (tmp_path / "planted-1.0.dist-info/RECORD").write_text("\n".join(rows))
    CHANGES[change](tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    base.is_as_published.cache_clear()
    assert base.is_as_published("planted") is (change in ("nothing", "bytecode", "a script"))


def test_hosts_of_a_cluster_are_sent_what_only_this_one_lists(tmp_path, monkeypatch):
    (_, folder), _ = target(tmp_path)
    monkeypatch.syspath_prepend(str(folder))
    library = importlib.import_module("library")
    packed = Packed.of((library.blocks, cloudpickle.dumps, json.dumps)).content
    assert Origin.is_installed("library")
    assert _modules_in([packed]) == [folder / "library.py"]
    del sys.modules["library"]


def test_all_that_the_package_declares_to_need_goes_by_name():
    text = Path(__file__).parents[3].joinpath("pyproject.toml").read_text()
    lists = [text.partition(f"\n{name} = [")[2].partition("]")[0] for name in ("dependencies", "tune", "cli")]
    names = [name for each in lists for name in re.findall(r'^  "([a-z]+)', each, flags=re.MULTILINE)]
    assert all(lists)
    assert {*names, "torch", "triton"} == NEEDS
    assert all(Origin.is_installed(name) and Origin.is_found_again(name) for name in names)


@pytest.mark.processes
@pytest.mark.parametrize("layout", COMPILED, ids=lambda layout: layout.__name__)
def test_kernels_compile_ahead_in_every_layout(tmp_path, layout):
    assert sent(tmp_path, layout, "compile")["compiled"] == ["OK", ""]
