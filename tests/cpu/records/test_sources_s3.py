"""Records and lockfiles on an S3 server, by the commands, as machines hand them to each other."""

import socket
import time

import fsspec
import pytest
from moto.server import ThreadedMotoServer

from tests.cpu.records.test_sources import (
    _begun_by_nobody,
    exported,
    first_launch,
    keys,
    next_process,
    own_folder,
    record_of_total,
)
from tests.records import record
from triton_ops.exceptions import CacheError
from triton_ops.records import (
    RECORDS,
    Lockfile,
    MemoryStore,
    export_records,
    import_records,
    open_store,
    share_records,
    sources,
    store,
    store_in,
)

__all__ = ["_begun_by_nobody", "keys"]
pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def bucket():
    """The URL of a bucket on a server of this machine, which the environment names as that of all of S3."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("AWS_ENDPOINT_URL", "http://{}:{}".format(*server.get_host_and_port()))
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patched.setenv(name, "hunter2")
        patched.setenv("AWS_DEFAULT_REGION", "us-east-1")
        fsspec.filesystem("s3").mkdir("winners")
        yield "s3://winners"
    server.stop()


def test_records_go_from_machine_to_machine(bucket, keys, tmp_path, monkeypatch, cli):
    url = f"{bucket}/records.json"
    own = open_store(own_folder())
    for name in ("one", "two"):
        own.put(record(name))
    ran = cli("cache", "export", url, "--sign", keys["ours"][0])
    assert (ran.code, ran.out) == (0, f"2 records to {url}\n")
    next_process(monkeypatch, tmp_path / "other machine")
    ran = cli("cache", "import", url)
    assert ran.code == 0
    assert ran.out.startswith("2 added, 0 replaced, 0 skipped")
    assert sorted(each.key.kernel for each in open_store(own_folder())) == ["one", "two"]
    for content, why in ((exported(tmp_path), "it is not signed"), (b"{", "it is not JSON")):
        fsspec.filesystem("s3").pipe_file("winners/records.json", content)
        ran = cli("cache", "import", url)
        assert ran.code == 4
        assert why in ran.err
        assert "hunter2" not in ran.err
    ran = cli("cache", "import", f"{bucket}/none.json")
    assert ran.code == 4
    assert f"{bucket}/none.json cannot be fetched" in ran.err


def test_a_lockfile_is_written_updated_and_compared(bucket, keys, monkeypatch, tmp_path, cli):
    url = f"{bucket}/lock.json"
    own = open_store(own_folder())
    for name in ("one", "two"):
        own.put(record(name))
        ran = cli("lock", name, "--lockfile", url, "--sign", keys["ours"][0], "--allow-unproven")
        assert ran.code == 0, ran.err
    assert [entry.kernel for entry in Lockfile.read(url).entries] == ["one", "two"]
    assert cli("lock", "--allow-unproven", "--lockfile", tmp_path / "here.json").code == 0
    ran = cli("lock", "--check", "--lockfile", tmp_path / "here.json", "--against", url)
    assert ran.code == 0, ran.out
    assert cli("lock", "one", "--lockfile", url, "--allow-unproven").code == 0  # which signs it no more
    ran = cli("lock", "--lockfile", url, "--allow-unproven")
    assert ran.code == 4
    assert "it is not signed" in ran.err


def test_an_empty_machine_answers_its_first_launch_from_200_kernels_of_a_bucket(
    bucket, keys, tmp_path, monkeypatch, steady_clock
):
    own, url = record_of_total(tmp_path), f"{bucket}/all.json"
    records = [own, *(record(f"kernel {number}") for number in range(199))]
    assert export_records(records, url, keys["ours"][0]) == 200
    next_process(monkeypatch, tmp_path / "empty machine")
    monkeypatch.setenv("TRITON_OPS_SHARED_DIRS", url)
    first_launch(own, monkeypatch)
    assert len(list(store_in(own_folder()))) == 200


def test_a_server_that_is_gone_is_a_miss_within_two_seconds(bucket, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    fsspec.filesystem("s3").clear_instance_cache()
    share_records(f"{bucket}/gone.json")
    began_s = time.monotonic()
    assert store.shared_folders() == ()
    assert time.monotonic() - began_s < 3.5
    fsspec.filesystem("s3").clear_instance_cache()


def test_a_server_that_takes_nothing_ends_an_export_in_time(bucket, monkeypatch):
    monkeypatch.setattr(sources, "_COMMAND_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        fsspec.filesystem("s3").clear_instance_cache()
        began_s = time.monotonic()
        with pytest.raises(CacheError, match="has not answered in time"):
            export_records([record()], f"{bucket}/silent.json")
        assert time.monotonic() - began_s < 3.0
    fsspec.filesystem("s3").clear_instance_cache()


def test_other_schemes_of_fsspec_are_taken(keys, tmp_path, monkeypatch):
    fsspec.filesystem("memory").pipe_file("/winners.json", exported(tmp_path, key=keys["ours"][0]))
    target = MemoryStore(RECORDS)
    assert len(import_records("memory://winners.json", target).added) == 2
    export_records(target, "memory://copy.json", keys["ours"][0])
    assert fsspec.filesystem("memory").cat_file("/copy.json") == (tmp_path / "export.json").read_bytes()
    with pytest.raises(CacheError, match=r"memory://none\.json cannot be fetched"):
        import_records("memory://none.json", target)
