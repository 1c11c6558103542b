"""The pages of the Python reference: every public name, by what it is for; its text is its docstring."""

from __future__ import annotations

import inspect
import pprint
import re
import textwrap
from collections import defaultdict
from importlib import import_module

import triton_ops
from triton_ops._faces import FACES


def _file_of(name: str, module: str) -> str:
    """The module that has a public name, past the faces that show it."""
    import_module(module)
    shown_there = FACES.get(module, {})
    return _file_of(name, shown_there[name]) if name in shown_there else module


_MODULE_OF = {name: _file_of(name, module) for name, module in FACES["triton_ops"].items()}

PAGES = {
    "tuning": ("Tuning", "Find the fastest config of a kernel or callable, recall it, and read what was found."),
    "space": ("Spaces", "Which configs may be tried: tunables, their values, and rules that configs must keep."),
    "operations": ("Kernels and operations", "What is tuned: a kernel, its arguments, its reference and its work."),
    "launching": ("Launching what is known", "Decorated kernels, lockfiles, and what a launch does with a problem."),
    "choices": ("Choosing implementations", "One operation, several implementations: which one runs for which call."),
    "comparing": ("Comparing", "How long a callable takes, and which of several is faster."),
    "compiling": ("Models and `torch.compile`", "In which way a model is compiled best, and what is worth doing."),
    "diagnosis": ("Expectations and diagnosis", "What to expect of configs before they run, spills, and profiles."),
    "kernels": ("Shipped kernels", "Functions and modules for a model, which run with the configs of their records."),
    "documented": ("The documented tuner", "`TritonAutoTuner`, its lists of configs, its cache and its benchmarks."),
    "errors": ("Errors", "Every error of this package has a type of its own, and says what to do next."),
}  # the page of each name: what heads it, and one sentence
_PAGE_OF = {
    "autotuner": "documented", "backend": "operations", "benchmark": "documented", "benchmark.comparing": "comparing",
    "benchmark.call_profile": "compiling", "benchmark.timing": "comparing", "cost_model": "diagnosis",
    "dispatch": "launching", "dispatch.chooser": "choices", "dispatch.implementation": "choices",
    "exceptions": "errors",
    "records.layered": "launching", "records.packaged_lockfiles": "launching", "ship.preparing": "launching",
    "space": "space", "values.key": "operations", "values.tensors": "operations", "values.tolerance": "operations",
    "values.work": "operations", "triton_ops_kernels": "kernels", "triton_ops_kernels.choosers": "choices",
    "triton_ops_lab": "diagnosis", "triton_ops_torch": "compiling",
}  # the room, package or file of a room in which a name is defined, and its page; others are about tuning  # fmt: skip
_FIRST = ("tune", "recall", "autotune", "Operation", "operation", "ConfigSpace", "compare", "tune_compile", "rank")


def page_of(name: str) -> str:
    """The page of a public name."""
    room, *file = _MODULE_OF[name].removeprefix("triton_ops.").split(".")[:2]
    return _PAGE_OF.get(".".join([room, *file]), _PAGE_OF.get(room, "tuning"))


def api_pages() -> dict[str, str]:
    """The Markdown of each page of the reference, by its place on the site."""
    names = defaultdict(list)
    for name in sorted(_MODULE_OF, key=_place):
        names[page_of(name)].append(name)
    pages = {f"reference/api/{page}.md": _page(page, names[page]) for page in PAGES}
    return {"reference/api/index.md": _index(), **pages}


def _place(name: str) -> tuple[int, str]:
    return (_FIRST.index(name) if name in _FIRST else len(_FIRST), name.lower())


def _page(page: str, names: list[str]) -> str:
    title, sentence = PAGES[page]
    entries = "\n".join(map(_entry, names))
    return f"# {title}\n\n{sentence} Each name is imported from `triton_ops`.\n\n```{{eval-rst}}\n{entries}```\n"


def _entry(name: str) -> str:
    """The words with which Sphinx finds a name; of a constant its docstring would be that of its class."""
    if _directive(name) != "py:data":
        bases = "   :show-inheritance:\n" if _directive(name) == "autoexception" else ""
        return f".. {_directive(name)}:: triton_ops.{name}\n{bases}"
    values = textwrap.indent(pprint.pformat(getattr(triton_ops, name), sort_dicts=False), " " * 6)
    return f".. py:data:: triton_ops.{name}\n\n   {summary(name)}\n\n   .. code-block:: python\n\n{values}\n"


def _directive(name: str) -> str:
    value = getattr(triton_ops, name)
    if inspect.isclass(value):
        return "autoexception" if issubclass(value, BaseException) else "autoclass"
    return "autofunction" if callable(value) else "py:data"


def _index() -> str:
    rows = "\n".join(
        f"| {{py:obj}}`triton_ops.{name}` | {summary(name)} |" for name in sorted(_MODULE_OF, key=str.lower)
    )
    pages = "\n".join(f"- [{title}]({page}.md): {sentence}" for page, (title, sentence) in PAGES.items())
    return (
        "# All names\n\nEach of these is imported from `triton_ops`. The import loads neither torch nor Triton; a "
        f"name that needs them loads them when first used.\n\n{pages}\n\n| name | what it is |\n|---|---|\n{rows}\n"
    )


def summary(name: str) -> str:
    """The first line of what is said of a public name; a ValueError where nothing is."""
    said = _comment_on(name) if _directive(name) == "py:data" else inspect.getdoc(getattr(triton_ops, name))
    if not said:
        raise ValueError(f"triton_ops.{name} has no docstring")
    return said.splitlines()[0].replace("|", "\\|")


def _comment_on(name: str) -> str | None:
    """The text in comments `#:` above a constant, which Sphinx reads too."""
    module = import_module(_MODULE_OF[name])
    found = re.search(rf"^#: (.+)\n(?:#:.*\n)*{name}\b", inspect.getsource(module), re.MULTILINE)
    return found[1] if found else None
