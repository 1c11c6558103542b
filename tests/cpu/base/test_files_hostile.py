"""Files that are not what they should be: FIFOs, devices, links, files of others, and files that a person names."""

import codecs
import errno
import gzip
import json
import logging
import lzma
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from triton_ops.base import AppendedFile, Folder, NamedFile, StoredFile, folders
from triton_ops.base.files import append_line, unpacked

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as a second user")
NOBODY = 65534


def no_regular_file(folder: Path, kind: str) -> Path:
    path = folder / kind
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as end:
            end.bind(str(path))
    else:
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero, which never ends
        except PermissionError:
            path.symlink_to("/dev/zero")
    return path


KINDS = ["FIFO", "device", "socket", "folder"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_regular_file_is_refused_and_never_waited_for(tmp_path, kind):
    path = no_regular_file(tmp_path, kind)
    with pytest.raises(OSError, match="not a regular file") as caught:
        StoredFile(path).read(1000)
    assert kind in str(caught.value)
    with pytest.raises(OSError, match=kind):
        list(StoredFile(path).lines())
    with pytest.raises(OSError, match=r"not a regular file|link"):
        append_line(path, "x")
    assert not StoredFile(str(path)).holds(b"x")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", KINDS)
def test_a_lock_that_is_no_file_is_one_warning_and_no_lock(tmp_path, kind, caplog):
    no_regular_file(tmp_path, kind).rename(tmp_path / ".lock")
    for _ in range(2):
        with Folder(tmp_path).locked() as held:
            assert not held
    [warning] = caplog.records
    assert str(tmp_path / ".lock") in warning.getMessage()
    assert "without the lock" in warning.getMessage()


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EIO, errno.ENOSYS])
def test_a_file_system_without_locks_is_one_warning_and_no_lock(tmp_path, code, monkeypatch, caplog):
    def broken(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(folders.fcntl, "flock", broken)
    for _ in range(2):
        with Folder(tmp_path).locked() as held:
            assert not held
    assert [os.strerror(code) in result.getMessage() for result in caplog.records] == [True]


def test_a_file_is_read_up_to_its_limit(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1000)
    assert len(StoredFile(path).read(1000)) == 1000
    with pytest.raises(OSError, match="larger than 999 bytes"):
        StoredFile(path).read(999)
    assert StoredFile(str(path)).holds(b"x" * 1000)
    assert not StoredFile(str(path)).holds(b"x" * 999)
    assert not StoredFile(str(path)).holds(b"x" * 1001)


def test_a_line_without_end_is_cut_and_the_next_is_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("triton_ops.base.files.LONGEST_LINE_BYTES", 100)
    path = tmp_path / "lines"
    path.write_bytes(b"a" * 1000 + b"\nb\n\n" + b"c" * 100 + b"\n" + b"d" * 99 + b"\n" + b"torn" * 100)
    assert list(StoredFile(path).lines()) == [b"a" * 100, b"b", b"c" * 100, b"d" * 99]


@pytest.mark.parametrize("count", [0, 1, 2, 5000])
def test_the_last_line_is_read_from_the_end(tmp_path, count):
    path = tmp_path / "lines"
    lines = [f"{number}" * 100 for number in range(count)]
    path.write_text("".join(f"{line}\n" for line in lines) + "torn")
    assert StoredFile(path).last_line().decode() == (lines[-1] if lines else "")
    assert StoredFile(tmp_path / "absent").last_line() == b""


# Links


def test_links_are_read_in_a_folder_that_only_its_owner_may_write(tmp_path):
    (tmp_path / "file").write_text("text\n")
    (tmp_path / "link").symlink_to("file")
    tmp_path.chmod(0o755)
    assert StoredFile(tmp_path / "link").read(10) == b"text\n"
    assert list(StoredFile(tmp_path / "link").lines()) == [b"text"]
    for mode in (0o775, 0o1777):
        tmp_path.chmod(mode)
        with pytest.raises(OSError, match="link"):
            StoredFile(tmp_path / "link").read(10)


def test_nothing_is_appended_through_a_link(tmp_path):
    (tmp_path / "file").write_text("text\n")
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(OSError, match="link"):
        append_line(tmp_path / "link", "more")
    os.link(tmp_path / "file", tmp_path / "second")
    append_line(tmp_path / "second", "more")  # such as a snapshot that is made of links
    tmp_path.chmod(0o1777)
    with pytest.raises(OSError, match="2 hard links"):
        append_line(tmp_path / "second", "more")
    assert (tmp_path / "file").read_text() == "text\nmore\n"


def test_a_folder_that_is_a_link_is_followed_only_where_its_owner_made_it(tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "runs").symlink_to("elsewhere")
    assert Folder(tmp_path / "runs" / "key").within(tmp_path) == tmp_path / "runs" / "key"
    tmp_path.chmod(0o1777)
    with pytest.raises(OSError, match="it is a link, not a folder"):
        Folder(tmp_path / "runs" / "key").within(tmp_path)


# Modes


@pytest.mark.parametrize(("folder", "mask", "mode"), [
    (0o755, 0o022, 0o600), (0o700, 0o000, 0o600), (0o775, 0o002, 0o660), (0o2775, 0o022, 0o640),
    (0o1777, 0o022, 0o644), (0o1777, 0o077, 0o600),
])  # fmt: skip
def test_a_locks_permissions_are_those_of_its_folder_less_the_umask(tmp_path, folder, mask, mode):
    tmp_path.chmod(folder)
    before = os.umask(mask)
    try:
        with Folder(tmp_path).locked() as held:
            assert held
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / ".lock").stat().st_mode) == mode


def test_a_lock_that_others_could_hold_is_made_private_again(tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / ".lock").touch(0o666)
    (tmp_path / ".lock").chmod(0o666)
    with Folder(tmp_path).locked():
        pass
    assert stat.S_IMODE((tmp_path / ".lock").stat().st_mode) == 0o600


# Files that a person names


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o664])
def test_a_named_file_keeps_its_permissions(tmp_path, mode):
    path = tmp_path / "export.json"
    path.write_text("old")
    path.chmod(mode)
    NamedFile(path).write("new")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", mode)
    assert [result.name for result in tmp_path.iterdir()] == ["export.json"]


def test_of_a_named_link_the_file_at_its_end_is_written(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder/second")
    (tmp_path / "folder" / "second").symlink_to("file")
    NamedFile(tmp_path / "link").write("new")
    assert (tmp_path / "folder" / "file").read_text() == "new"
    assert (tmp_path / "link").is_symlink()
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(OSError, match="symbolic links"):
        NamedFile(tmp_path / "circle").write("new")


@pytest.mark.timeout(20)
def test_a_named_fifo_is_written_to_while_it_is_read_and_refused_otherwise(tmp_path):
    path = no_regular_file(tmp_path, "FIFO")
    with pytest.raises(OSError, match="no process reads"):
        NamedFile(path).write("text")
    with pytest.raises(OSError, match="no process writes"):
        NamedFile(path).read()
    with path.open("r+b", buffering=0) as both, ThreadPoolExecutor(1) as pool:
        reading = pool.submit(lambda: b"".join(iter(lambda: both.read(1), b"!")))
        NamedFile(path).write("text" * 50_000 + "!")
        assert reading.result() == b"text" * 50_000
    assert stat.S_ISFIFO(path.stat().st_mode)


@pytest.mark.timeout(20)
def test_a_pipe_is_read_to_its_end(tmp_path):
    read, write = os.pipe()
    thread = threading.Thread(target=lambda: (os.write(write, b"a" * 60_000), os.write(write, b"b"), os.close(write)))
    thread.start()
    assert NamedFile(Path(f"/dev/fd/{read}")).read() == b"a" * 60_000 + b"b"
    thread.join()
    os.close(read)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("limit", [1, 99])
def test_a_pipe_of_more_than_its_limit_is_refused_with_the_limit(limit):
    read, write = os.pipe()
    os.write(write, b"a" * 100)
    os.close(write)
    with pytest.raises(OSError, match=f"it is larger than {limit} bytes"):
        NamedFile(Path(f"/dev/fd/{read}")).read(limit)
    os.close(read)


@pytest.mark.parametrize("kind", ["socket", "folder"])
def test_other_named_things_are_refused_and_stay(tmp_path, kind):
    path = no_regular_file(tmp_path, kind)
    before = path.stat().st_mode
    with pytest.raises(OSError, match=kind):
        NamedFile(path).write("text")
    with pytest.raises(OSError, match=kind):
        NamedFile(path).read()
    assert path.stat().st_mode == before


@pytest.mark.timeout(20)
def test_no_file_is_made_of_the_name_that_elsewhere_means_the_output(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OSError, match="it is no file's name here: the standard output is /dev/stdout"):
        NamedFile(Path("-")).write("text")
    assert list(tmp_path.iterdir()) == []


def test_a_named_device_is_written_to_and_never_replaced(tmp_path):
    path = no_regular_file(tmp_path, "device")
    before = path.stat().st_mode
    NamedFile(path).write("text")
    assert stat.S_ISCHR(path.stat().st_mode)
    assert path.stat().st_mode == before
    with pytest.raises(OSError, match="it is a device"):
        NamedFile(path).read()
    with pytest.raises(OSError, match="No space"):
        NamedFile(Path("/dev/full")).write("text")


@pytest.mark.processes
@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_stdout_by_name_is_the_stdout_of_this_process(tmp_path, name, kind):
    code = (
        "import os, pathlib, sys; from triton_ops.base import NamedFile\n"
        f"os.write(1, b'before '); NamedFile(pathlib.Path({name!r})).write('text'); os.write(1, b' after')"
    )
    with (tmp_path / "out").open("wb") as file:
        out = subprocess.PIPE if kind == "pipe" else file
        done = subprocess.run([sys.executable, "-c", code], stdout=out, check=True)
    assert (done.stdout if kind == "pipe" else (tmp_path / "out").read_bytes()) == b"before text after"


def test_what_unpacks_to_far_more_than_its_size_is_refused(monkeypatch):
    text = b'{"a": [1, 2, 3]}\n' * 1000
    assert unpacked(text) == text
    packed = gzip.compress(text)
    assert unpacked(packed) == text
    assert unpacked(packed + packed) == text + text
    with pytest.raises(OSError, match="unpack to more"):
        unpacked(gzip.compress(b"\0" * (5 << 20)))
    monkeypatch.setattr("triton_ops.base.files._MOST_UNPACKED_BYTES", 1000)
    with pytest.raises(OSError, match="unpack to more than 1000 bytes"):
        unpacked(packed)
    monkeypatch.undo()
    for cut in (3, 12, len(packed) // 2, len(packed) - 1):
        with pytest.raises(OSError, match="cut off"):
            unpacked(packed[:cut])
    for place in range(10, len(packed)):
        with pytest.raises(OSError, match="gzip"):
            unpacked(packed[:place] + bytes([packed[place] ^ 4]) + packed[place + 1 :])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_text_is_read_as_shells_and_collectors_leave_it(tmp_path, encoding, pack):
    text = '{"größe": 1}\r\n'
    content = (codecs.BOM_UTF16_BE if encoding == "utf-16-be" else b"") + text.encode(encoding)
    (tmp_path / "file").write_bytes(pack(content))
    assert NamedFile(tmp_path / "file").text() == text
    assert NamedFile(tmp_path / "file").read(unpack=True) == text.encode()


@pytest.mark.parametrize(
    ("content", "reason"),
    [(lzma.compress(b"text"), "no text"), (gzip.compress(b"text", mtime=0)[:-3], "cut off"), (b"\xe9", "no text")],
)
def test_what_is_no_text_is_an_error_of_the_system(tmp_path, content, reason):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(OSError, match=reason):
        NamedFile(tmp_path / "file").text()


# Other users


AS_NOBODY = """
import os, sys, logging
from pathlib import Path
import fcntl, json, time
from triton_ops.base.files import *
from triton_ops.base.folders import *
from triton_ops.base.plain import *
from triton_ops.base import folders
logging.basicConfig(format="%(message)s")
folder = Path(sys.argv[1])
os.setgroups([]); os.setgid(65534); os.setuid(65534)
"""


@pytest.fixture
def shared():
    """A folder that everybody may write and reach; pytest closes its own whenever another session starts."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        folder = Path(place) / "shared"
        folder.mkdir()
        folder.chmod(0o1777)
        yield folder


def as_nobody(code, folder):
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY + code, str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.processes
@root_only
def test_files_of_another_user_in_a_folder_of_everybody_are_neither_read_nor_written(shared):
    as_nobody("(folder / 'file').write_text('theirs\\n'); (folder / 'runs').mkdir(0o1777)", shared)
    with pytest.raises(PermissionError, match=f"belongs to user {NOBODY}"):
        StoredFile(shared / "file").read(100)
    with pytest.raises(PermissionError, match=f"belongs to user {NOBODY}"):
        append_line(shared / "file", "mine")
    with pytest.raises(PermissionError, match=f"belongs to user {NOBODY}"):
        Folder(shared / "runs" / "key").within(shared)
    assert (shared / "file").read_text() == "theirs\n"
    shared.chmod(0o755)  # now its owner alone can have put the file there
    assert StoredFile(shared / "file").read(100) == b"theirs\n"


@pytest.mark.processes
@root_only
def test_the_folders_owner_is_believed_and_its_files_are_read_by_others(shared):
    StoredFile(shared / "file").replace("root's\n")
    message = as_nobody(
        "print(StoredFile(folder / 'file').read(100), list(StoredFile(folder / 'file').lines()))", shared
    ).stdout
    assert message == 'b"root\'s\\n" [b"root\'s"]\n'


@pytest.mark.processes
@root_only
@pytest.mark.parametrize("through", ["file", "folder", "hard link"])
def test_planted_links_do_not_lead_to_a_users_other_files(shared, tmp_path, through, caplog):
    private = tmp_path / "private"
    private.mkdir(0o700)
    (private / "line.jsonl").write_text("private\n")
    runs = shared / "runs"
    if through == "folder":
        as_nobody(f"(folder / 'runs').symlink_to({str(private)!r})", shared)
    else:
        as_nobody("(folder / 'runs').mkdir(0o1777); (folder / 'runs').chmod(0o1777)", shared)
        if through == "file":
            as_nobody(f"(folder / 'runs' / 'line.jsonl').symlink_to({str(private / 'line.jsonl')!r})", shared)
        else:
            os.link(private / "line.jsonl", runs / "line.jsonl")  # nobody may where fs.protected_hardlinks is 0
    file = AppendedFile(runs / "line.jsonl", "it is lost", root=shared)
    file.append({"a": 1})
    file.append({"a": 2})
    assert (private / "line.jsonl").read_text() == "private\n"
    [warning] = caplog.records
    assert "it is lost" in warning.getMessage()
    chosen = AppendedFile(runs / "line.jsonl", "it is lost")  # somebody has chosen the folder itself
    if through != "folder":
        chosen.append({"a": 3})
        assert (private / "line.jsonl").read_text() == "private\n"


@pytest.mark.processes
@root_only
def test_a_link_that_another_user_planted_is_not_written_through_by_name(shared, tmp_path):
    (tmp_path / "mine").write_text("old")
    as_nobody(f"(folder / 'export.json').symlink_to({str(tmp_path / 'mine')!r})", shared)
    with pytest.raises(PermissionError, match=f"link of user {NOBODY}"):
        NamedFile(shared / "export.json").write("new")
    assert (tmp_path / "mine").read_text() == "old"


HOLD = """
if {name!r} not in os.listdir(folder):
    os.close(os.open(folder / {name!r}, os.O_RDWR | os.O_CREAT, 0o666))
try:
    file = os.open(folder / {name!r}, os.O_RDONLY)
    fcntl.flock(file, fcntl.LOCK_EX)
    print("held", flush=True)
except OSError as error:
    print(error.strerror, flush=True)
sys.stdin.read()
"""


def held_by_nobody(folder):
    process = subprocess.Popen(
        [sys.executable, "-c", AS_NOBODY + HOLD.format(name=".lock"), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    return process, process.stdout.readline().strip()


@pytest.mark.processes
@root_only
@pytest.mark.timeout(60)
def test_no_reader_of_a_private_folder_can_hold_its_lock(shared):
    shared.chmod(0o755)
    with Folder(shared).locked() as held:
        assert held
    process, message = held_by_nobody(shared)
    with Folder(shared).locked(wait_s=0) as held:
        assert held
    process.communicate()
    assert message == os.strerror(errno.EACCES)


@pytest.mark.processes
@root_only
@pytest.mark.timeout(60)
def test_a_lock_that_another_user_holds_in_a_folder_of_everybody_is_not_waited_for_for_ever(
    shared, monkeypatch, caplog
):
    monkeypatch.setattr(folders, "SHARED_WAIT_S", 0.2)
    process, message = held_by_nobody(shared)
    waited = []
    with Folder(shared).locked(waiting=lambda: waited.append(True), poll_s=0.01) as held:
        assert not held
    process.communicate()
    assert (message, waited) == ("held", [True])
    assert [result.levelno for result in caplog.records] == [logging.WARNING]


@pytest.mark.processes
@root_only
def test_a_sweep_leaves_the_files_of_other_users(shared):
    theirs, mine = f".mine-{'0' * 16}.tmp", f".mine-{'1' * 16}.tmp"
    as_nobody(f"(folder / '{theirs}').touch()", shared)
    (shared / mine).touch()
    Folder(shared).sweep(now_s=4e9)
    assert [path.name for path in shared.iterdir()] == [theirs]


TUNED = """
import json, logging, os, sys, tempfile
from pathlib import Path
from triton_ops import tune
from triton_ops.values import Key
from triton_ops.records import Quarantine
from triton_ops.tuner import Silent
from triton_ops.request import TuneProblem
import triton_ops.records.store as directory

def planned(*, n):
    return n

folder, private = map(Path, sys.argv[1:])
with tempfile.TemporaryDirectory() as warm:  # imports everything: the other user may not read where Python is installed
    tune(planned, space={"n": [1, 2]}, cache_dir=warm, listener=Silent())
directory._LOCK_WAIT_S = 0.5
logging.basicConfig(stream=sys.stderr, format="WARNED %(message)s")
os.setgroups([]); os.setgid(1); os.setuid(1)
task = TuneProblem(target=planned, space={"n": [1, 2]}).request().checked()
key = Key.of(task.problem, task.kernel.identity, task.device)
print(json.dumps([key.id, Quarantine.of(folder, key)._path.name]), flush=True)
sys.stdin.readline()
result = tune(planned, space={"n": [1, 2]}, cache_dir=folder, listener=Silent())
again = tune(planned, space={"n": [1, 2]}, cache_dir=folder, listener=Silent())
print(json.dumps([len(result.trials), result.from_cache, again.from_cache]))
"""

PLANTED = """
key, quarantine, private = sys.argv[2:]
for name in ("runs", "quarantine"):
    (folder / name).mkdir(); (folder / name).chmod(0o1777)
(folder / "quarantine" / quarantine).symlink_to(Path(private) / "file")
(folder / "runs" / key).symlink_to(private)
os.mkfifo(folder / f"{key}.record.json")
held = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
fcntl.flock(held, fcntl.LOCK_EX)
print("planted", flush=True)
sys.stdin.read()
"""


@pytest.mark.processes
@root_only
@pytest.mark.timeout(120)
def test_a_tune_among_what_another_user_planted_ends_as_without_it(shared, tmp_path):
    private = tmp_path / "private"
    private.mkdir()
    (private / "file").write_text("private\n")
    for path in (private / "file", private):
        os.chown(path, 1, 1)
        path.chmod(0o700)
    started = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(
        [sys.executable, "-c", TUNED, str(shared), str(private)], stderr=subprocess.PIPE, **started
    ) as tuning:
        names = json.loads(tuning.stdout.readline())
        planting = [sys.executable, "-c", AS_NOBODY + PLANTED, str(shared), *names, str(private)]
        with subprocess.Popen(planting, **started) as other:
            assert other.stdout.readline() == "planted\n"
            out, err = tuning.communicate("go\n")
            other.communicate()
    assert tuning.returncode == 0, err
    assert json.loads(out)[:2] == [2, False], err
    assert [path.name for path in private.iterdir()] == ["file"]
    assert (private / "file").read_text() == "private\n"
    warned = [line for line in err.splitlines() if line.startswith("WARNED")]
    for what in ("runs", "quarantine", "record.json is ignored: it is a FIFO", ".lock cannot be locked"):
        assert any(what in line for line in warned), (what, warned)
