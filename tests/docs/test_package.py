"""The package as it would be published: two builds are equal, its links work on an index, and its extras are named."""

from __future__ import annotations

import re
import shutil
import tarfile
from email import message_from_string
from pathlib import Path
from zipfile import ZipFile

import pytest
from hatch_build import for_index

builders = pytest.importorskip("hatchling.builders.wheel", reason="the package is built with hatchling")
sources = pytest.importorskip("hatchling.builders.sdist")

PROJECT = Path(__file__).parents[2]
FILES = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "CHANGELOG.md", ".gitignore")


@pytest.fixture
def small(tmp_path):
    """The project with a small part of its code, which is built in the same way."""
    project = tmp_path / "project"
    (project / "src/triton_ops").mkdir(parents=True)
    for name in FILES:
        shutil.copy(PROJECT / name, project)
    (project / "docs").mkdir()
    shutil.copy(PROJECT / "docs/README.md", project / "docs")
    for name in ("__init__.py", "py.typed", "settings.py"):
        shutil.copy(PROJECT / "src/triton_ops" / name, project / "src/triton_ops")
    return project


def built(project, folder):
    for kind in (builders.WheelBuilder, sources.SdistBuilder):
        yield Path(next(kind(str(project)).build(directory=str(folder), versions=["standard"])))


def test_two_builds_have_equal_bytes_and_say_what_an_index_shows(small, tmp_path):
    first = list(built(small, tmp_path / "first"))
    for path in small.rglob("*.py"):
        path.touch()
        path.chmod(0o600)
    second = list(built(small, tmp_path / "second"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    with tarfile.open(first[1]) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert {path.name for path in unpacked.iterdir()} == {*FILES, "PKG-INFO", "src"}, "no other page of that name"
    assert next(built(unpacked, tmp_path / "third")).read_bytes() == first[0].read_bytes(), "it is built from the sdist"
    with ZipFile(first[0]) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith("METADATA")]
        metadata = message_from_string(wheel.read(name).decode())
    core = {re.split(r"[>=<]", text)[0] for text in metadata.get_all("Requires-Dist") if "extra ==" not in text}
    assert core == {"cloudpickle", "msgspec", "platformdirs"}
    assert metadata["Author"] == "the triton_ops developers"
    assert metadata.get_all("Project-URL") is None, "there is no address yet"
    prose = re.sub(r"(?s)```.*?```|`[^`]*`", "", metadata.get_payload())
    assert re.findall(r"\]\((?!https?://|#)[^)\s]+\)", prose) == []


def test_links_of_the_readme_are_whole_where_the_repository_has_an_address():
    text = "[a page](docs/a.md#part) ![chart](b.png) `k[grid](x)` [out](https://there) [here](#there)"
    assert for_index(text, "") == "a page chart `k[grid](x)` [out](https://there) [here](#there)"
    assert for_index(text, "https://host/it") == (
        "[a page](https://host/it/blob/main/docs/a.md#part) ![chart](https://host/it/raw/main/b.png) `k[grid](x)` "
        "[out](https://there) [here](#there)"
    )


def test_the_citation_names_the_package_s_version():
    from triton_ops import __version__

    assert f"\nversion: {__version__}\n" in (PROJECT / "CITATION.cff").read_text(encoding="utf-8")
