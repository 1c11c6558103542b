"""The JSON Schema of each document is that of its type; `cli` of the tests holds what commands print to it."""

import ast

import pytest
from website.documents import DOCUMENTS
from website.schemas import FOLDER, fault, schema_of, texts

from .test_shown import PROJECT

FOLDER_OF_RECORDS = {"kind": "triton-ops folder of records", "schema_version": 1, "path": "/records"}
DOCTOR = {
    "kind": "triton-ops doctor", "schema_version": 1,
    "items": [{"name": "torch", "found": "2.11.0", "ok": True, "means": "tensors work"}],
}  # fmt: skip
ENGINE = {"problems", "tables", "rows", "changes"}  # `triton_ops_serving` puts these together


def kinds_in_code():
    """The kinds of documents that commands name."""
    for folder in ("src", "serving"):
        for path in (PROJECT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "Facts" and node.args:
                    kind = node.args[0]
                    yield from [kind.value] if isinstance(kind, ast.Constant) else (f"engine {each}" for each in ENGINE)


def test_the_files_are_those_of_the_types():
    assert {path: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()} == texts(), "python -m website.schemas"


def test_every_document_has_a_type_and_every_type_a_document():
    assert set(kinds_in_code()) == set(DOCUMENTS)


@pytest.mark.parametrize(
    ("document", "found"),
    [
        (FOLDER_OF_RECORDS, ""),
        (DOCTOR, ""),
        ({**FOLDER_OF_RECORDS, "path": 1}, "folder of records: Expected `str`, got `int` - at `$.path`"),
        ({**FOLDER_OF_RECORDS, "more": 1}, "folder of records: Object contains unknown field `more`"),
        ({**DOCTOR, "items": [{"name": "torch"}]}, "doctor: Object missing required field `found` - at `$[0]`"),
    ],
)
def test_a_document_that_its_type_does_not_have_is_found(document, found):
    assert fault(document) == found


def test_a_schema_says_what_members_mean_and_allows_those_of_later_versions():
    own, parts = schema_of("tune"), schema_of("tune")["$defs"]
    assert own["properties"]["kind"] == {"const": "triton-ops tune"}
    assert {"kind", "schema_version", "best_config", "trials"} <= set(own["required"])
    assert own["properties"]["trials"] == {
        "description": "Every trial in the order tried.", "type": "array", "items": {"$ref": "#/$defs/Trial"},
    }  # fmt: skip
    assert own["properties"]["ties"]["description"].startswith("Configs that could not be told from the fastest")
    assert "additionalProperties" not in own | parts["Trial"]
