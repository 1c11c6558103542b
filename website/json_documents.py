"""The page of the JSON documents, made from their schemas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from website.documents import DOCUMENTS
from website.schemas import schema_of

_HEAD = """# Every JSON document

What commands print with `--json`, by the document's `kind`, made from the types of the documents. Each has `kind` and
`schema_version`, which is 1. The same is in `docs/reference/schemas` as JSON Schema. Later versions may add members.
"""
_WORDS = {
    "string": "text", "number": "number", "integer": "whole number", "boolean": "true or false", "null": "null",
    "object": "object",
}  # fmt: skip


def documents_page() -> str:
    """Markdown with a section for each document, and below for each part that documents share."""
    schemas = [schema_of(kind) for kind in DOCUMENTS]
    parts = {name: part for schema in schemas for name, part in schema.get("$defs", {}).items()}
    own = [line for schema in schemas for line in _section(schema["title"], schema)]
    return "\n".join([_HEAD, *own, *(line for name in sorted(parts) for line in _section(name, parts[name]))])


def _section(title: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"## {title}\n"
    if "description" in schema:
        yield f"{schema['description']}\n"
    members = {name: one for name, one in schema["properties"].items() if "const" not in one}
    if members:
        rows = [f"| `{name}` | {_type(one)} | {one.get('description', '')} |" for name, one in members.items()]
        yield "\n".join(["| member | type | meaning |", "|---|---|---|", *rows, ""])


def _type(schema: dict[str, Any]) -> str:
    """A type in words."""
    if "anyOf" in schema:
        return ", ".join(map(_type, schema["anyOf"][:-1])) + " or " + _type(schema["anyOf"][-1])
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if schema.get("type") == "array":
        return f"list of: {_type(schema.get('items', {}))}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"by name: {_type(schema['additionalProperties'])}"
    return _WORDS.get(schema.get("type", ""), "any")
