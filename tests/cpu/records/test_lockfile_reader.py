"""The reader that projects copy gives the same answers as the package, or says that it has none."""

import importlib.util
import json
import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cpu.records.test_lockfile import H200, HERE, IDENTITY, entry, key, lock
from triton_ops.base import Sealed, canonical_json
from triton_ops.exceptions import LockfileError
from triton_ops.records import LockedDevice
from triton_ops.records.lock_entry import EntryOrigin
from triton_ops.records.lockfile import loads
from triton_ops.space import Config
from triton_ops.values import Range

PATH = Path(__file__).parents[3] / "examples" / "lockfile_reader.py"
SPEC = importlib.util.spec_from_file_location("lockfile_reader", PATH)
reader = sys.modules["lockfile_reader"] = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(reader)

MI300 = LockedDevice(alias="mi", kind="hip", name="AMD Instinct MI300X", arch="gfx942", also=("MI325X",))
CPU = LockedDevice(alias="cpu", kind="cpu", name="x86", units=4, threads=2)
FACTS = [
    HERE, HERE, HERE, {**HERE, "name": "nvidia_h200"}, {**HERE, "units": 16}, {**HERE, "driver": "580"}, {},
    {"kind": "hip", "name": "mi-325x", "arch": "gfx942", "units": 9}, {"kind": "cpu", "name": "X86", "units": 4},
]  # fmt: skip
IDENTITIES = [IDENTITY, {**IDENTITY, "source": "d" * 32}, {**IDENTITY, "triton": "3.7.0"}, {"source": "a" * 32}, {}]
EXTENTS = [("M",), ("M", "x[0]", "y[0]"), ("N", "x[1]", "y[1]"), ("eps",), ("x[0]",), ("gone",)]
ORIGINS = [EntryOrigin(driver=driver) for driver in (None, 570, "570.1")]
SIZES = [0, 1, 16, 17, 32, 64, 100, 1024]
VALUES = [1, True, 1.0, -0.0, 1e-6, None, "é", {"float": "inf"}, {"any": True}]


def drawn_entry(draw):
    low = draw.choice(SIZES)
    ranges = [Range(draw.choice(EXTENTS), low, 4 * low + draw.choice([0, 200])) for _ in range(draw.choice([0, 1, 2]))]
    config = Config(BLOCK=draw.choice([16, None, 0.5, (1, ("a",)), True]))
    new = entry(
        draw.choice(SIZES), draw.choice([1, 64]), kernel=draw.choice(["add", "add", "mul"]), config=config,
        device=draw.choice(["h200", "h200", "mi", "cpu"]), ranges=tuple(ranges),
        ignored=draw.choice([(), ("eps",), ("z",)]),
        identity=draw.choice(IDENTITIES), origin=draw.choice(ORIGINS),
        **({} if low % 16 else {"bits": "a1", "same_bits": low > 16}),
    )  # fmt: skip
    return replace(new, problem={**new.problem, "eps": draw.choice(VALUES)})


def drawn_key(draw, problem):
    """A key, every second time for this problem or one like it."""
    if draw.random() < 1 / 2:
        problem = {**json.loads(canonical_json(problem)), **draw.choice([{}, {}, {"eps": 1}, {"M": 40}])}
        return replace(key(device=draw.choice(FACTS), identity=draw.choice(IDENTITIES)), problem=problem)
    changes = draw.choice([{}, {}, {"y": 3}, {"z": 1}, {"x": {"shape": [16, 64], "dtype": "int8", "stride": [1, 16]}}])
    m, n, eps = draw.choice(SIZES), draw.choice([1, 64]), draw.choice(VALUES)
    return key(m, n, device=draw.choice(FACTS), identity=draw.choice(IDENTITIES), **{"eps": eps, **changes})


def sealed(content):
    """The text of a lockfile's content with right checksums, as far as it can have them."""

    def seal(part):
        return Sealed({n: v for n, v in part.items() if n != "checksum"}) if isinstance(part, dict) else part

    entries = content["entries"] if isinstance(content["entries"], list) else []
    return json.dumps(seal({**content, "entries": [*map(seal, entries)]} if entries else content))


def drawn_text(draw, entries):
    """The text of a lockfile, one in three of them damaged, foreign or ill-formed under right checksums."""
    text = lock(*entries, devices=(H200, MI300, CPU)).text
    if draw.random() < 2 / 3:
        return text
    if draw.random() < 1 / 3:
        at = draw.randrange(len(text))
        return text[:at] + draw.choice(["", "1", "\\ud800", '"', "\x01"]) + text[at + draw.randint(0, 2) :]
    content = json.loads(text)
    part = draw.choice([content, content["devices"][0], content["entries"][0], content["entries"][0]])
    part = draw.choice([part, *(each for each in part.values() if isinstance(each, dict))])
    value = draw.choice([None, 2, 1.5, -1, "a", True, [], ["a"], {}, {"a": 1}, [[1]]])
    part[draw.choice([*part, "unknown"])] = value
    return sealed(content)


def package_says(text, asked):
    try:
        lockfile = loads(text)
    except LockfileError:
        return "refused"
    pinned = lockfile.find(asked)
    if pinned is None:
        return lockfile.why_not(asked)
    return dict(pinned.entry.config), pinned.rung, pinned.entry.label, pinned.drift


def reader_says(text, asked):
    try:
        lockfile = reader.Lockfile.loads(text.encode("utf-8", "surrogatepass"))
    except reader.RefusedError:
        return "refused"
    try:
        answer = lockfile.find(asked.kernel, asked.device, asked.problem, asked.identity)
    except reader.NoAnswerError as error:
        return str(error)
    return answer.config, answer.rung, answer.entry.get("label", ""), answer.drift


@pytest.mark.processes
def test_a_thousand_lockfiles_and_calls_are_answered_as_by_the_package():
    draw, kinds = random.Random(38), set()
    for _ in range(1000):
        entries = {each.place: each for each in (drawn_entry(draw) for _ in range(draw.randint(1, 3)))}
        text, asked = drawn_text(draw, [*entries.values()]), drawn_key(draw, next(iter(entries.values())).problem)
        expected = package_says(text, asked)
        assert reader_says(text, asked) == expected, (text, asked)
        kinds.add(expected[1] if isinstance(expected, tuple) else expected.partition(":")[0][-12:])
    assert {"exact", "range", "refused"} < kinds


ILL_FORMED = {
    "extent range": ("problem", {"x": {"shape": [[1, 2]], "dtype": "int8", "stride": [1]}}),
    "number range": ("problem", {"n": {"range": [1, 64]}}),
    "deep value": ("config", {"BLOCK": json.loads("[" * 17 + "]" * 17)}),
    "object in a value": ("config", {"BLOCK": [{"a": 1}]}),
    "large number": ("config", {"BLOCK": 2**64}),
    "time beyond floats": ("measured", {"cache_state": "cold", "mode": "graph", "median_ms": 10**400}),
    "call of a number": ("call", 7),
    "class of a number": ("bits", 7),
    "call without configs": ("call", {"arguments": {}, "configs": [], "grids": []}),
}


@pytest.mark.parametrize("kind", ILL_FORMED)
def test_what_no_lockfile_holds_is_refused_by_both_under_right_checksums(kind):
    field, value = ILL_FORMED[kind]
    content = json.loads(lock(entry(16), devices=(H200,)).text)
    content["entries"][0][field] = value
    assert (reader_says(sealed(content), key(16)), package_says(sealed(content), key(16))) == ("refused", "refused")


def test_the_deepest_and_largest_values_are_taken_by_both():
    content = json.loads(lock(entry(16), devices=(H200,)).text)
    content["entries"][0]["config"] = {"BLOCK": json.loads("[" * 16 + "]" * 16), "SEED": 2**64 - 1}
    assert reader_says(sealed(content), key(16)) == package_says(sealed(content), key(16))
    assert package_says(sealed(content), key(16))[1] == "exact"


def test_a_range_of_what_is_no_number_in_the_entry_holds_for_no_call():
    new = replace(entry(16, ranges=(Range(("eps",), 0, 64),)), problem={**entry(16).problem, "eps": None})
    for eps, says in ((1, "none of 1 entries of add answers: eps is 1, not None"), (None, "not one whole number")):
        asked = key(16, eps=eps)
        assert says in package_says(lock(new).text, asked)
        assert reader_says(lock(new).text, asked) == package_says(lock(new).text, asked)
