"""Triton's key of itself is made once for all processes, and again whenever a file of Triton has changed."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

from triton_ops.backend.triton_process import KEPT, package_state, ready_key
from triton_ops.base import SealedFile

pytestmark = pytest.mark.triton


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Where the key is kept, in a folder of compiled kernels that does not exist yet."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    return tmp_path / "triton" / KEPT


@pytest.fixture
def cache(monkeypatch):
    """Triton's module of the key, with Triton's own function again after the test."""
    result = importlib.import_module("triton.runtime.cache")
    monkeypatch.setattr(result, "triton_key", result.triton_key)
    return result


def test_the_second_process_takes_the_key_of_the_first(kept, cache):
    own = cache.triton_key
    ready_key()
    assert cache.triton_key is own, "the process that makes the key leaves Triton's function where it is"
    written = kept.read_bytes()
    ready_key()
    assert cache.triton_key is not own
    assert cache.triton_key() == own()
    assert kept.read_bytes() == written


@pytest.mark.processes
def test_a_process_that_compiles_takes_the_key_that_is_kept(kept, cache):
    ready_key()
    program = (
        "import triton.runtime.cache as cache; own = cache.triton_key\n"
        "from triton_ops.backend import TritonProcess; TritonProcess.warm_up(launches=False).join()\n"
        "assert cache.triton_key is not own\n"
        "print(cache.triton_key())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ran.stdout.strip() == cache.triton_key()


@pytest.mark.parametrize("content", ["", "{}", "[]", "\0", '{"files": 1, "key": 2}', None])
def test_a_damaged_file_is_made_again(kept, cache, content):
    own = cache.triton_key
    ready_key()
    right = kept.read_text()
    kept.write_text(right.replace('"key": "', '"key": "x') if content is None else content)
    ready_key()
    assert cache.triton_key is own
    assert kept.read_text() == right


def test_the_key_of_other_files_is_not_taken(kept, cache):
    own = cache.triton_key
    SealedFile(kept).keep({"files": "of another Triton", "key": "no key"})
    ready_key()
    assert cache.triton_key is own
    assert "no key" not in kept.read_text()


def test_a_folder_that_cannot_be_made_or_written_keeps_nothing(tmp_path, monkeypatch, cache):
    own = cache.triton_key
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "file" / "triton"))
    ready_key()
    assert cache.triton_key is own
    kept = tmp_path / "folder" / KEPT
    kept.mkdir(parents=True)
    SealedFile(kept).keep({"files": "", "key": ""})
    assert list(kept.parent.iterdir()) == [kept]


def test_whatever_changes_a_file_that_triton_reads_changes_their_state(tmp_path):
    package = tmp_path / "triton"
    (package / "_C").mkdir(parents=True)
    library, source = package / "_C" / "libtriton.so", package / "__init__.py"
    library.write_bytes(b"one")
    source.write_text("")
    states = [package_state(package)]

    def changed(by):
        by()
        states.append(package_state(package))

    changed(lambda: library.write_bytes(b"longer"))
    changed(lambda: (package / "new.py").touch())
    changed(lambda: os.utime(source, ns=(1, 1)))
    before = library.stat()
    replaced = tmp_path / "as long"
    replaced.write_bytes(b"LONGER")
    os.utime(replaced, ns=(before.st_atime_ns, before.st_mtime_ns))
    changed(lambda: replaced.replace(library))
    assert len(set(states)) == len(states)
    (package / "notes.txt").touch()
    (package / "__pycache__").mkdir()
    assert package_state(package) == states[-1]
    assert package_state(Path(str(package) + "/")) == states[-1]
