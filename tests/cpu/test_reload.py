"""A kernel's function loaded again: by import, or from the part of a script that defines it."""

from __future__ import annotations

import ast
import sys

import pytest

from triton_ops.exceptions import TargetError
from triton_ops.processes.locate import Location
from triton_ops.processes.reload import needed, reloaded

SCRIPT = '''"""A script that runs its work at the top level."""
from __future__ import annotations
import math
import json as unused
from os.path import join

WIDTH = 4
HEIGHT = WIDTH * 2
data = print("this would be the work") or [1]
x = data[0]
try:
    import tomllib as toml
except ImportError:
    toml = None


def helper(x):
    def inner(y):
        return y + math.floor(HEIGHT)

    return inner(x)


def kernel(x, path=join("a", "b")):
    data = [helper(x)]
    return data[0], path, __name__, toml is None


if __name__ == "__main__":
    kernel(data)
kernel.note = data
raise SystemExit("the script's end")
'''


def test_only_what_a_function_needs_is_kept():
    tree = ast.parse(SCRIPT)
    kept = [ast.unparse(node).splitlines()[0] for node in needed(tree.body, "kernel")]
    assert kept == [
        "from __future__ import annotations",
        "import math",
        "from os.path import join",
        "WIDTH = 4",
        "HEIGHT = WIDTH * 2",
        "try:",
        "def helper(x):",
        "def kernel(x, path=join('a', 'b')):",
    ]


def test_a_script_is_not_run_again(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    file = tmp_path / "some_script.py"
    file.write_text(SCRIPT)
    function = reloaded(Location("some_script", str(file), "kernel"))
    try:
        assert function(1)[:3] == (9 + 0, "a/b", "some_script")
        assert function.__code__.co_firstlineno == SCRIPT[: SCRIPT.index("def kernel")].count("\n") + 1
        assert capsys.readouterr().out == ""
    finally:
        del sys.modules["some_script"]


def test_a_module_that_can_be_imported_is():
    found = reloaded(Location("json.decoder", sys.modules["json.decoder"].__file__, "JSONDecoder"))
    assert found is sys.modules["json.decoder"].JSONDecoder


@pytest.mark.parametrize("text", ["", "def other(): pass", "def kernel(:", "kernel = 1 / 0"])
def test_an_object_that_cannot_be_loaded_is_an_error_with_the_reason(tmp_path, text, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    file = tmp_path / "broken_one.py"
    file.write_text(text)
    with pytest.raises(TargetError, match=r"kernel of .*broken_one\.py cannot be loaded in another process: "):
        reloaded(Location("broken_one", str(file), "kernel"))
    sys.modules.pop("broken_one", None)
    with pytest.raises(TargetError, match="FileNotFoundError"):
        reloaded(Location("gone", str(tmp_path / "gone.py"), "kernel"))


def test_the_program_that_runs_is_not_imported_though_its_name_leads_to_it(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "the_program.py"
    file.write_text("def kernel():\n    return 7\n\n\nraise SystemExit('it runs again')\n")
    assert reloaded(Location("the_program", str(file), "kernel", script=True))() == 7
    del sys.modules["the_program"]
