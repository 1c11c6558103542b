"""The order of the site's pages. Paths are those on the site, without `.md`."""

from __future__ import annotations

from website.api import PAGES as API

BENCHMARKS = tuple(
    f"benchmarks/{page}"
    for page in (
        "results/README", "timing/README", "model/README", "results/search/README", "league/README",
        "shipped/README", "torch_compile/README", "many/README", "results/lint/README",
    )
)  # fmt: skip
SECTIONS = {
    "First steps": (
        "start/first-kernel",
        "start/function",
        "start/notebook",
        "README",
    ),
    "How to": (
        "guides/install",
        "guides/kernel",
        "guides/autotune",
        "guides/lockfile",
        "guides/engines",
        "guides/migrate",
        "guides/compare",
        "guides/check",
        "guides/choose",
        "guides/kernels",
        "guides/many",
        "guides/compile-modes",
        "guides/torch-compile",
        "guides/faults",
        "guides/pitfalls",
        "guides/report",
        "guides/spills",
        "guides/simulate",
        "guides/extend",
    ),
    "Explanation": (
        "concepts/dispatch",
        "concepts/keys",
        "concepts/trust",
        "concepts/measurement",
        "concepts/verdicts",
        "concepts/search",
        "concepts/model",
        "architecture",
    ),
    "Reference": (
        "reference/cli",
        "reference/commands",
        "reference/documents",
        "reference/lint",
        "reference/rules",
        "reference/files",
        "reference/security",
        "reference/glossary",
    ),
    "Python interface": ("reference/api/index", *(f"reference/api/{page}" for page in API)),
    "Project": (
        "changelog", "contributing", "benchmarks/README", *BENCHMARKS, "examples/softmax",
    ),
}  # fmt: skip


def contents() -> str:
    """The navigation in the words of Sphinx, to stand at the end of the first page."""
    return "\n".join(_tree(caption, pages) for caption, pages in SECTIONS.items())


def _tree(caption: str, pages: tuple[str, ...]) -> str:
    return "\n".join(
        ["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *(f"/{page}" for page in pages), "```", ""]
    )
