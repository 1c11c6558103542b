"""`python -m website.schemas`: write the JSON Schema of every document that a command prints with `--json`.

The types of `website.documents` say what a document holds, and their docstrings what each member means.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from triton_ops.terminal.facts import SCHEMA_VERSION
from website.documents import DOCUMENTS
from website.documents.common import Form

FOLDER = Path(__file__).parents[1] / "docs" / "reference" / "schemas"
_PROGRAM = "triton-ops"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_MEMBER = re.compile(r"^    (\w+(?:, \w+)*): (.*(?:\n {5,}.*)*)", re.MULTILINE)


def texts() -> dict[Path, str]:
    """The text of each file."""
    forms = {kind: schema_of(kind) for kind in DOCUMENTS}
    return {
        FOLDER / f"{kind.replace(' ', '-')}.json": json.dumps(form, indent=2, ensure_ascii=False) + "\n"
        for kind, form in forms.items()
    }


def schema_of(kind: str) -> dict[str, Any]:
    """The schema of a document. Members that it does not name are allowed, as later versions may have some."""
    form = DOCUMENTS[kind]
    (own,), parts = msgspec.json.schema_components([form], ref_template="#/$defs/{name}")
    for one in _forms_in(form):
        _describe(parts[one.__name__], one)
    own = parts.pop(form.__name__) if _is_form(form) else own
    if own["type"] == "array":
        own = {"type": "object", "properties": {"items": own}, "required": ["items"]}
    head = {"kind": {"const": f"{_PROGRAM} {kind}"}, "schema_version": {"const": SCHEMA_VERSION}}
    whole = {
        "$schema": _DIALECT, **own, "title": f"{_PROGRAM} {kind}", "properties": head | own.get("properties", {}),
        "required": [*head, *own.get("required", [])],
    }  # fmt: skip
    return whole | ({"$defs": parts} if parts else {})


def _describe(schema: dict[str, Any], form: type[Form]) -> None:
    """Have a schema say what the docstring of its type says, and allow further members."""
    del schema["additionalProperties"]
    schema["description"] = (inspect.getdoc(form) or "").partition("\n")[0]
    for text in (inspect.cleandoc(one.__doc__ or "") for one in form.__mro__):
        for names, words in _MEMBER.findall(text.partition("\nAttributes:\n")[2]):
            for name in names.split(", "):
                member = schema["properties"][name]
                schema["properties"][name] = {"description": " ".join(words.split()), **member}


def _is_form(form: Any) -> bool:
    return isinstance(form, type) and issubclass(form, Form)


def _forms_in(form: Any) -> set[type[Form]]:
    """The types of objects that a type is made of, itself included."""
    parts = [*get_args(form), *(get_type_hints(form).values() if _is_form(form) else ())]
    return {form for _ in range(_is_form(form))}.union(*map(_forms_in, parts))


def fault(document: Mapping[str, Any]) -> str:
    """What of a document is not as its type says, members that the type does not name included; empty for nothing."""
    kind = document["kind"].removeprefix(f"{_PROGRAM} ")
    body = {name: value for name, value in document.items() if name not in ("kind", "schema_version")}
    try:
        msgspec.convert(body["items"] if list(body) == ["items"] else body, DOCUMENTS[kind])
    except msgspec.ValidationError as error:
        return f"{kind}: {error}"
    return ""


def main() -> None:
    """Write the files, and remove those of documents that there are no more."""
    FOLDER.mkdir(exist_ok=True)
    written = texts()
    for file in set(FOLDER.glob("*.json")) - set(written):
        file.unlink()
    for file, text in written.items():
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
