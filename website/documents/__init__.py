"""The JSON documents of the commands, as types whose docstrings say what each member means.

A type is that of a document without its `kind` and `schema_version`, or of its `items`.
"""

from __future__ import annotations

from typing import Any

from website.documents import (
    checks,
    expectations,
    models,
    profiles,
    records,
    reports,
    shipping,
    simulations,
    tuning,
)

DOCUMENTS: dict[str, Any] = {
    kind: form
    for module in (tuning, records, reports, expectations, profiles, simulations, shipping, models, checks)
    for kind, form in module.DOCUMENTS.items()
}  # by the kind, without the program's name
