"""Records and lockfiles by URL: fetched, judged and kept; what is wrong with one is a miss with its reason."""

import json
import logging
import os
import ssl
import sys
import time
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import triton_ops
from tests.cpu.records.test_lockfile_reader import reader
from tests.records import record, run_python
from tests.served import http_server, pem
from triton_ops.base import Sealed
from triton_ops.dispatch import early_start, ladder
from triton_ops.exceptions import CacheError, LockfileError, SettingsError
from triton_ops.records import (
    RECORDS,
    FollowedLockfile,
    Lockfile,
    LockPlan,
    MemoryStore,
    bundle,
    export_records,
    import_records,
    lock_of,
    open_store,
    share_lockfile,
    share_records,
    sources,
    store,
    store_in,
    unreached,
)
from triton_ops.records.signing import signed
from triton_ops.request import TuneOptions

LIMIT_S = 2.0
SLACK_S = 1.5  # of a machine where other tests run too


@pytest.fixture(scope="module")
def server():
    with http_server() as served:
        yield served


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """By name the private and the public file: `ours` is trusted."""
    folder = tmp_path_factory.mktemp("keys")
    return {name: pem(folder, name) for name in ("ours", "theirs")}


@pytest.fixture(autouse=True)
def _begun_by_nobody(monkeypatch, keys):
    monkeypatch.setenv("TRITON_OPS_TRUSTED_KEYS", str(keys["ours"][1]))
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(store, "_shared_by_packages", {})
    monkeypatch.setattr(store, "_unreached", {})
    monkeypatch.setattr(sources.Fetch, "BEGUN", {})
    monkeypatch.setattr(FollowedLockfile, "SHARED", {})


def next_process(monkeypatch, folder=None):
    """As another process finds it, on another machine if a cache folder is given."""
    monkeypatch.setattr(sources.Fetch, "BEGUN", {})
    if folder is not None:
        monkeypatch.setenv("TRITON_OPS_CACHE_DIR", str(folder))


def exported(tmp_path, *names, key=None):
    path = tmp_path / "export.json"
    export_records(map(record, names or ("one", "two")), path, key)
    return path.read_bytes()


def own_folder():
    return os.environ["TRITON_OPS_CACHE_DIR"]


def test_a_signed_export_is_imported_by_its_url_and_fetched_once(server, keys, tmp_path):
    url = server.serve("/once.json", exported(tmp_path, key=keys["ours"][0]))
    own = open_store(tmp_path / "cache")
    assert str(import_records(url, own)) == "2 added, 0 replaced, 0 skipped"
    assert [each.key.kernel for each in own] == [each.key.kernel for each in own if each == record(each.key.kernel)]
    assert str(import_records(url, own)) == "0 added, 0 replaced, 2 skipped"
    assert server.statuses("/once.json") == [200, 304]
    server.serve("/once.json", exported(tmp_path, "three", key=keys["ours"][0]))
    assert import_records(url, own).added == (record("three").id,)
    assert server.statuses("/once.json") == [200, 304, 200]


def test_equal_records_give_equal_bytes_when_they_are_signed_too(keys, tmp_path):
    first = exported(tmp_path, key=keys["ours"][0])
    assert first == exported(tmp_path, key=keys["ours"][0])
    assert list(json.loads(first)) == ["kind", "schema_version", "records", "signature", "checksum"]
    # A file that somebody names on this machine is believed, whoever has signed it.
    assert len(import_records(tmp_path / "export.json", MemoryStore(RECORDS)).added) == 2


def altered(content):
    """The content with other values and its right checksum, as whoever means to deceive makes it."""
    plain = {**json.loads(content), "records": []}
    del plain["checksum"]
    return json.dumps(Sealed(plain))


@pytest.mark.parametrize("how", ["unsigned", "theirs", "altered", "no keys", "no signature", "no object", "deep"])
def test_what_no_trusted_key_has_signed_is_refused(server, keys, tmp_path, monkeypatch, how):
    ours = exported(tmp_path, key=keys["ours"][0])
    content, why = {
        "unsigned": (exported(tmp_path), "it is not signed"),
        "theirs": (exported(tmp_path, key=keys["theirs"][0]), "no key of TRITON_OPS_TRUSTED_KEYS has signed it"),
        "altered": (altered(ours), "no key of TRITON_OPS_TRUSTED_KEYS has signed it"),
        "no keys": (ours, "TRITON_OPS_TRUSTED_KEYS names no key"),
        "no signature": (json.dumps(Sealed({"signature": "no"})), "no key of TRITON_OPS_TRUSTED_KEYS has signed it"),
        "deep": (f'{{"signature": "00", "records": {"[" * 900}{"]" * 900}}}', ""),
        "no object": ("[]", "it holds a list instead of a JSON object"),
    }[how]
    if how == "no keys":
        monkeypatch.delenv("TRITON_OPS_TRUSTED_KEYS")
    url, target = server.serve(f"/{how.replace(' ', '-')}.json", content), MemoryStore(RECORDS)
    with pytest.raises(CacheError, match=f"is not used: {why}"):
        import_records(url, target)
    assert not list(target)
    assert not list(Path(own_folder()).rglob("*.json"))


def test_a_content_that_a_url_names_needs_no_signature_and_may_be_no_other(server, tmp_path):
    url = server.serve("/pinned.json", exported(tmp_path))
    with pytest.raises(CacheError, match="not signed") as refused:
        import_records(url, MemoryStore(RECORDS))
    digest = refused.value.hint.rpartition("…")[2]
    assert len(import_records(url + digest, MemoryStore(RECORDS)).added) == 2
    assert len(import_records(url + digest, MemoryStore(RECORDS)).added) == 2
    assert server.statuses("/pinned.json") == [200, 200]  # a named content that is here is not asked for
    with pytest.raises(CacheError, match="serves another content than the one that is named"):
        import_records(f"{url}#sha256={'0' * 64}", MemoryStore(RECORDS))
    with pytest.raises(CacheError, match="what follows its # is no digest"):
        import_records(f"{url}#sha256=0", MemoryStore(RECORDS))


@pytest.mark.parametrize("text", ["", "no key", "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"])
def test_a_file_that_holds_no_key_is_a_typed_error(server, keys, tmp_path, monkeypatch, text):
    bad = tmp_path / "bad.pem"
    bad.write_text(text)
    with pytest.raises(SettingsError, match=r"bad\.pem has no Ed25519 key for this"):
        exported(tmp_path, key=bad)
    url = server.serve("/keys.json", exported(tmp_path, key=keys["ours"][0]))
    monkeypatch.setenv("TRITON_OPS_TRUSTED_KEYS", f"{bad}{os.pathsep}{keys['ours'][1]}")
    with pytest.raises(SettingsError, match=r"bad\.pem has no Ed25519 key for this"):
        import_records(url, MemoryStore(RECORDS))


LONG = "x" * 1000


@pytest.mark.parametrize(("url", "why"), [
    ("http://example.org/x.json", "it is http:; read are https://"),
    ("https://somebody:hunter2@localhost/x.json", "it has a user or a password"),
    ("https://hunter2@localhost/x.json", "it has a user or a password"),
    ("s3://key:hunter2@bucket/x.json", "it has a user or a password"),
    ("https://[::1/x.json", "Invalid IPv6 URL"),
    ("nosuch://bucket/x.json", "cannot be fetched"),
    (f"file:///{LONG}/x.json", "cannot be fetched"),
])  # fmt: skip
def test_urls_that_are_not_read_are_told_without_their_secrets(url, why):
    with pytest.raises(CacheError, match=why) as refused:
        import_records(url, MemoryStore(RECORDS))
    assert "hunter2" not in str(refused.value)


def test_answers_that_lie_or_lead_elsewhere_are_refused(server, keys, tmp_path, monkeypatch):
    content = exported(tmp_path, key=keys["ours"][0])
    server.missing_bytes = {"/short.json": 100, "/long.json": -100}
    server.redirects = {
        "/to-file.json": "file:///etc/passwd", "/to-ftp.json": "ftp://localhost/x.json",
        "/to-plain.json": "http://example.org/x.json",
        "/round.json": server.url + "/round.json", "/moved.json": server.url + "/there.json",
    }  # fmt: skip
    urls = {path: server.serve(path, content) for path in ("/short.json", "/long.json", "/there.json")}
    for path, why in {
        "/short.json": "it ended 100 bytes before the length that was announced", "/long.json": "it is not JSON",
        "/to-file.json": "HTTP 302", "/to-ftp.json": "it leads to ftp:", "/to-plain.json": "it leads to http:",
        "/round.json": "HTTP 302", "/none.json": "HTTP 404",
    }.items():  # fmt: skip
        with pytest.raises(CacheError, match=why):
            import_records(urls.get(path, server.url + path), MemoryStore(RECORDS))
    assert len(import_records(server.url + "/moved.json", MemoryStore(RECORDS)).added) == 2
    monkeypatch.setattr(sources, "_LARGEST_BYTES", len(content) - 1)
    with pytest.raises(CacheError, match="it is larger than"):
        import_records(urls["/there.json"] + "?again", MemoryStore(RECORDS))
    assert len(list(Path(own_folder(), "sources").glob("[0-9a-f]*"))) == 2  # of what was moved: itself, and its pointer


@pytest.mark.processes
def test_an_export_of_a_million_records_is_refused_whole(server, keys, tmp_path):
    plain = {"kind": bundle.KIND, "schema_version": 1, "records": [{}] * 1_000_000}
    url = server.serve("/million.json", json.dumps(Sealed(signed(plain, keys["ours"][0]))))
    share_records(url)
    began_s = time.monotonic()
    assert store.shared_folders() == ()
    assert time.monotonic() - began_s < LIMIT_S + SLACK_S
    with pytest.raises(CacheError, match="has 1000000 records; at most 50000 are read"):
        import_records(url, MemoryStore(RECORDS))
    assert not [path for path in Path(own_folder(), "sources").iterdir() if path.is_dir()]


@pytest.mark.processes
def test_an_empty_machine_answers_its_first_launch_from_200_kernels_of_a_url(
    server, keys, tmp_path, monkeypatch, steady_clock
):
    own = record_of_total(tmp_path)
    records = [own, *(record(f"kernel {number}") for number in range(199))]
    assert export_records(records, tmp_path / "all.json", keys["ours"][0]) == 200
    url = server.serve("/200.json", (tmp_path / "all.json").read_bytes())
    monkeypatch.setenv("TRITON_OPS_SHARED_DIRS", f"{tmp_path / 'nowhere'}{os.pathsep}{url}")
    first_launch(own, monkeypatch)
    assert len(list(store_in(own_folder()))) == 200
    assert not list(Path(own_folder()).glob("*.record.json"))
    next_process(monkeypatch)
    del server.contents["/200.json"]  # as a machine that is offline: the copy answers
    assert store_in(own_folder()).get(own.id) == own


def total(n, chunk=64):
    return sum(sum(range(at, min(at + chunk, n))) for at in range(0, n, chunk))


OPERATION = triton_ops.operation(space={"chunk": [64, 256]}, arguments=lambda n=4096: {"n": n})(total)


def record_of_total(tmp_path):
    triton_ops.tune(OPERATION, device="cpu", cache_dir=tmp_path / "elsewhere")
    found = triton_ops.recall(OPERATION, device="cpu", cache_dir=tmp_path / "elsewhere")
    return replace(found, winner=next(each for each in OPERATION.space if each != found.winner))


def first_launch(expected, monkeypatch):
    ladder._sources.ladders.clear()
    began_s = time.monotonic()
    with triton_ops.on_miss("error"):
        assert OPERATION(n=4096) == total(4096)
    assert time.monotonic() - began_s < 5.0
    launched = [each for each in triton_ops.launches() if each.record == expected.id]
    assert [dict(each.config) for each in launched] == [dict(expected.winner)]


@pytest.mark.parametrize("how", ["hanging", "dripping", "refused", "gone"])
def test_a_url_that_does_not_answer_is_a_miss_with_its_reason_within_two_seconds(
    server, tmp_path, monkeypatch, caplog, how
):
    path = f"/{how}.json"
    url = server.serve(path, exported(tmp_path))
    server.hanging.add(path) if how == "hanging" else server.dripping.add(path)
    if how == "gone":
        with http_server() as other:
            url = other.serve(path, b"")
    if how == "refused":
        server.dripping.discard(path)
    monkeypatch.setenv("TRITON_OPS_SHARED_DIRS", url)
    began_s = time.monotonic()
    assert triton_ops.recall(OPERATION, device="cpu") is None
    assert store.shared_folders() == ()
    assert time.monotonic() - began_s < LIMIT_S + SLACK_S
    why = {"refused": "it is not signed", "gone": "Connection refused"}.get(how, "has not answered in time")
    assert [each for each in unreached() if why in each]
    assert why in caplog.text
    _, passed = ladder.ladder_of().ask(question())
    assert [each for each in passed if each.startswith("record: http://localhost") and why in each]


def question():
    key = record("nobody's").key
    space = triton_ops.ConfigSpace({"BLOCK": [64, 128]})
    return ladder.LadderQuestion(key=key, asked=key, loose=frozenset(), space=space)


def test_a_copy_answers_at_once_while_the_url_hangs_and_is_judged_anew(server, keys, tmp_path, monkeypatch, caplog):
    url = server.serve("/kept.json", exported(tmp_path, key=keys["ours"][0]))
    share_records(url)
    assert len(list(store_in(own_folder()))) == 2
    next_process(monkeypatch)
    server.hanging.add("/kept.json")
    share_records(url)
    began_s = time.monotonic()
    assert len(store.shared_folders()) == 1
    assert time.monotonic() - began_s < 1.0
    server.hanging.discard("/kept.json")
    next_process(monkeypatch)
    server.serve("/kept.json", exported(tmp_path, "strange", key=keys["theirs"][0]))
    share_records(url)
    sources.Fetch.begun(url)._outcome.exception(10.0)
    assert {each.key.kernel for each in store_in(own_folder())} == {"one", "two"}
    assert "the copy on this machine is used" in caplog.text
    next_process(monkeypatch)
    monkeypatch.setenv("TRITON_OPS_TRUSTED_KEYS", str(keys["theirs"][1]))  # the copy's own is trusted no more
    share_records(url)
    assert {each.key.kernel for each in store_in(own_folder())} == {"strange"}
    [copy] = [path for path in Path(own_folder(), "sources").glob("*.json") if b"strange" in path.read_bytes()]
    copy.write_bytes(copy.read_bytes().replace(b"strange", b"planted"))
    next_process(monkeypatch)
    server.hanging.add("/kept.json")
    share_records(url)
    assert store.shared_folders() == ()


def test_neither_secrets_of_the_environment_nor_of_a_url_are_sent_elsewhere_or_told(
    server, keys, tmp_path, monkeypatch, caplog
):
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "HF_TOKEN", "GITHUB_TOKEN"):
        monkeypatch.setenv(name, "hunter2")
    (tmp_path / ".netrc").write_text("default login me password hunter2\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    caplog.set_level(logging.DEBUG)
    url = server.serve("/secret.json", exported(tmp_path)) + "?token=xyzzy"
    share_records(url)
    assert store.shared_folders() == ()
    with pytest.raises(CacheError) as refused:
        import_records(url, MemoryStore(RECORDS))
    told = [*unreached(), str(refused.value), caplog.text]
    share_records(server.serve("/secret.json", exported(tmp_path, key=keys["ours"][0])) + "?token=xyzzy#" + "")
    assert len(list(store_in(own_folder()))) == 2
    told += [path.read_text() for path in Path(own_folder()).rglob("*.json")]
    assert not [text for text in told if "xyzzy" in text or "hunter2" in text]
    assert "hunter2" not in str(server.requests)


def test_the_clock_decides_nothing(server, keys, tmp_path, monkeypatch):
    url = server.serve("/clock.json", exported(tmp_path, key=keys["ours"][0]))
    now = time.time
    for hours in (-1, 1):
        monkeypatch.setattr(time, "time", lambda hours=hours: now() + 3600 * hours)
        next_process(monkeypatch, tmp_path / f"machine {hours}")
        share_records(url)
        assert len(list(store_in(own_folder()))) == 2


DRAWN = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.processes
@given(st.data())
@DRAWN
def test_planted_records_are_never_taken(server, keys, tmp_path_factory, data):
    """Whoever may change what is served, and holds no trusted key, brings no record of their own in."""
    folder = tmp_path_factory.mktemp("planted")
    honest = json.loads(exported(folder, key=keys["ours"][0]))
    plain = {name: value for name, value in honest.items() if name not in ("checksum", "signature")}
    planted = data.draw(st.sampled_from(["winner", "removed", "added", "twice", "empty"]))
    first = plain["records"][0]
    if planted == "winner":
        value = data.draw(st.integers(-8, 8) | st.text(max_size=3) | st.booleans() | st.none())
        first["winner"] = {**first["winner"], data.draw(st.sampled_from(["BLOCK", "num_warps", "ir_override"])): value}
    elif planted == "added":
        plain["records"].append(RECORDS.contents(record(data.draw(st.text(min_size=1, max_size=5)))))
    else:
        plain["records"] = {"removed": [first], "twice": [first, first], "empty": []}[planted]
    sign = data.draw(st.sampled_from(["theirs", "nobody", "moved", "garbage"]))
    text = plain | {"moved": {"signature": honest["signature"]}, "garbage": {"signature": "00" * 64}}.get(sign, {})
    text = signed(plain, keys["theirs"][0]) if sign == "theirs" else text
    url = server.serve(f"/planted/{folder.name}.json", json.dumps(Sealed(text)))
    target = MemoryStore(RECORDS)
    if text == {name: value for name, value in honest.items() if name != "checksum"}:
        return  # a draw that has changed nothing
    with pytest.raises(CacheError, match="is not used"):
        import_records(url, target)
    assert not list(target)


@pytest.mark.parametrize("name", ["../../planted", "0" * 32, "x", 7, None])
def test_a_record_that_a_trusted_key_has_signed_is_judged_as_any_other(server, keys, tmp_path, caplog, name):
    bad = {**RECORDS.contents(record("bad")), "winner": {"BLOCK": [[[]]]}, "id": name}
    plain = {"kind": bundle.KIND, "schema_version": 1, "records": [RECORDS.contents(record("good")), bad]}
    url = server.serve("/judged.json", json.dumps(Sealed(signed(json.loads(json.dumps(plain)), keys["ours"][0]))))
    share_records(url)
    assert [each.key.kernel for each in store_in(own_folder())] == ["good"]
    assert ("is ignored" in caplog.text) == (name == "0" * 32)
    assert not list(Path(own_folder()).parent.rglob("planted.record.json"))
    assert len(import_records(url, MemoryStore(RECORDS)).skipped) == 1


def test_nothing_half_written_is_left_where_unpacking_fails(server, keys, tmp_path, monkeypatch):
    url = server.serve("/full.json", exported(tmp_path, key=keys["ours"][0]))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        share_records(url)
        assert store.shared_folders() == ()
    assert "No space left on device" in unreached()[0]
    assert not [path for path in Path(own_folder(), "sources").iterdir() if path.is_dir()]
    killed = Path(own_folder(), "sources", f".killed-{'0' * 16}")
    killed.mkdir()
    os.utime(killed, (0, 0))
    next_process(monkeypatch)
    assert len(list(store_in(own_folder()))) == 2
    assert not killed.exists()


def test_the_url_is_fetched_from_when_a_kernel_is_decorated_but_not_by_processes_of_this_package(
    server, keys, tmp_path, monkeypatch
):
    url = server.serve("/early.json", exported(tmp_path, key=keys["ours"][0]))
    monkeypatch.setenv("TRITON_OPS_SHARED_DIRS", url)
    with monkeypatch.context() as patched:
        patched.setenv("TRITON_OPS_FAMILY", "tune.123")
        early_start.await_tune(None, None, TuneOptions())
    assert sources.Fetch.BEGUN == {}
    early_start.await_tune(None, None, TuneOptions())
    [fetch] = sources.Fetch.BEGUN.values()
    assert fetch.result(60.0).is_dir()
    assert server.statuses("/early.json") == [200]


def locked(*names):
    return lock_of([replace(record(name), confidence="ok") for name in names], LockPlan(unproven=True))[0]


def test_lockfiles_are_read_by_url_and_shared(server, keys, tmp_path, caplog):
    lock, path = locked("one"), tmp_path / "signed.lock.json"
    lock.write(path, keys["ours"][0])
    assert Lockfile.read(path) == lock  # a named file is believed
    assert len(reader.Lockfile.read(path).entries) == 1
    url = server.serve("/lock.json", path.read_bytes())
    assert Lockfile.read(url) == lock
    share_lockfile(url)
    assert FollowedLockfile.shared() == (lock,)
    assert Lockfile.read(server.url + "/no-lock.json", or_empty=True) == Lockfile()
    lock.write(path)
    unsigned = server.serve("/unsigned-lock.json", path.read_bytes())
    with pytest.raises(LockfileError, match="it is not signed"):
        Lockfile.read(unsigned)
    share_lockfile(unsigned)
    assert FollowedLockfile.shared() == (lock,)
    assert "a package's lockfile is not used" in caplog.text
    with pytest.raises(LockfileError, match="is only read"):
        lock.write(url)


def test_https_is_read_if_the_machine_trusts_its_certificate(keys, tmp_path, monkeypatch):
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.now(timezone.utc)
    certificate = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=True).sign(key, SHA256())
    )  # fmt: skip
    path = tmp_path / "server.pem"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(private + certificate.public_bytes(Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    with http_server(context) as secure, http_server() as plain:
        url = secure.serve("/tls.json", exported(tmp_path, key=keys["ours"][0]))
        secure.redirects["/down.json"] = plain.serve("/tls.json", secure.contents["/tls.json"])
        with pytest.raises(CacheError, match="certificate verify failed"):
            import_records(url, MemoryStore(RECORDS))
        monkeypatch.setenv("SSL_CERT_FILE", str(path))
        assert len(import_records(url, MemoryStore(RECORDS)).added) == 2
        with pytest.raises(CacheError, match="it leads to http:"):
            import_records(secure.url + "/down.json", MemoryStore(RECORDS))


@pytest.mark.processes
def test_without_a_url_nothing_that_fetches_is_imported():
    script = (
        "import sys, triton_ops; from triton_ops.records import store_in, share_records, begin_sources; "
        "begin_sources(); share_records('/nowhere'); list(store_in('/nowhere')); "
        "print([name for name in ('fsspec', 's3fs', 'cryptography', 'urllib.request', 'triton_ops.records.sources') "
        "if name in sys.modules])"
    )
    ran = run_python("-c", script)
    assert ran.stdout == "[]\n", ran.stderr


assert sys.modules["triton_ops.records.store"] is store
