"""The growing report of a tune: served to this machine alone, read only, behind a token, until the tune ends."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager
from pathlib import Path
from unittest.mock import call, create_autospec
from urllib.parse import urlsplit

import pytest

from tests.limits import ENOUGH_S
from tests.records import ENVIRONMENT
from tests.runs import begun
from triton_ops.records import TrialOrigin as Origin
from triton_ops.report import live as growing
from triton_ops.report import live as watching
from triton_ops.report.live import GrowingReport
from triton_ops.space import Config
from triton_ops.terminal import PageServer
from triton_ops.terminal import page_server as server
from triton_ops.tuner import Listener, RunPlan
from triton_ops.values import Measurement, Status, Trial

TOKEN = "a-token-of-its-own"
KERNEL = """
import time
from pathlib import Path

def wait(n):
    while n == 2 and not Path({go!r}).exists():  # the second config runs until the test says so
        time.sleep(0.01)
    time.sleep(0.001 * n)
"""


def asked(address, path=None, *, method="GET", host=None):
    """The status, the headers and the text of an answer."""
    parts = urlsplit(address)
    with closing(http.client.HTTPConnection(parts.hostname, parts.port, timeout=ENOUGH_S)) as connection:
        connection.putrequest(method, parts.path if path is None else path, skip_host=True)
        for one in (parts.netloc,) if host is None else host:
            connection.putheader("Host", one)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, dict(answer.headers), answer.read().decode()


def a_trial(n):
    return Trial(Config(n=n, shape="x"), Status.OK, Measurement((1.0 + n,), "host"))


@contextmanager
def served(path, clock=time.monotonic):
    """The address of a growing report that this process serves."""
    bound = socket.create_server(("127.0.0.1", 0))
    result = GrowingReport(path)
    one = PageServer(bound, TOKEN, result.answer, clock)
    serving = threading.Thread(target=one.serve_forever, args=(0.01,), daemon=True)
    serving.start()
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/{TOKEN}/", result, one
    finally:
        result.end()
        one.shutdown()
        serving.join()
        one.drain(10)
        one.server_close()


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.setattr(growing, "PAUSE_S", 0.0)
    monkeypatch.setattr(growing, "_REST", 0.0)
    monkeypatch.setattr(growing, "_LOOK_S", 0.01)
    monkeypatch.setattr(growing, "POLL_S", 0.05)
    return begun(tmp_path)


def followed(tune, go):
    """The address, the process that served, and the last state of a run that is followed as a page does it."""
    told = tune.stderr.readline()
    address = re.fullmatch(r"watch this run at (http://127\.0\.0\.1:\d+/[\w-]{32}/) while it goes on\n", told)[1]
    status, _, page = asked(address)
    assert (status, page.count('"version":')) == (200, 1)
    [child] = watchers(tune.pid)
    assert urlsplit(address).path.strip("/") not in child.read_text(encoding="utf-8")
    seen, run, over = 0, {"all": 0}, False
    while not over:
        status, _, text = asked(address, f"{urlsplit(address).path}run.json?seen={seen}")
        if status == 200:
            seen, over, run = json.loads(text).values()
        if run["all"] and not go.exists():
            assert not run["ended"]
            go.touch()
    return address, child, run


@pytest.mark.processes
def test_a_tune_is_watched_from_outside_until_it_ends(tmp_path):
    go = tmp_path / "go"
    (tmp_path / "slow.py").write_text(KERNEL.format(go=str(go)), encoding="utf-8")
    words = ("tune", f"{tmp_path / 'slow.py'}:wait", "--space", "n=1,2,3", "--watch", "--json")
    tune = subprocess.Popen(
        [sys.executable, "-m", "triton_ops", *words, "--cache-dir", str(tmp_path / "cache")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT, text=True,
    )  # fmt: skip
    with tune:
        try:
            address, child, run = followed(tune, go)
            out, err = tune.communicate()
        finally:
            tune.kill()
    assert (run["ended"], run["all"], run["facts"]["state"]) == (True, 3, "ended: complete")
    assert (tune.returncode, json.loads(out)["best_config"]) == (0, {"n": 1}), err
    assert not child.exists()
    with pytest.raises(ConnectionError):
        asked(address)


def watchers(parent):
    """The command lines of the processes that serve for a tune."""
    started = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii").split()
    result = [Path("/proc", pid, "cmdline") for pid in started]
    return [path for path in result if b"report.live" in path.read_bytes()]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"])
def test_no_verb_writes(log, tmp_path, method):
    with served(log.path) as (address, _, _):
        before = log.path.read_bytes()
        assert asked(address, method=method)[0] == 405
        assert log.path.read_bytes() == before
        assert asked(address, method="HEAD")[::2] == (200, "")


HOSTS = {
    "another name": ["example.org"], "none": [], "two": ["localhost", "example.org"],
    "a part": ["127.0.0.1.example.org"], "no loopback": ["0.0.0.0"], "a user": ["127.0.0.1@example.org"], "empty": [""],
}  # fmt: skip


@pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS)
def test_a_request_by_another_name_of_the_machine_is_refused(log, host):
    with served(log.path) as (address, _, _):
        for name in ("", "run.json?seen=0"):
            status, _, text = asked(address, f"/{TOKEN}/{name}", host=host)
            assert (status, TOKEN in text) == (403, False)
        assert asked(address, host=["LOCALHOST:1234"])[0] == 200  # through a tunnel
        assert asked(address, f"/{TOKEN}")[1]["Location"] == f"/{TOKEN}/"


@pytest.mark.parametrize(
    "path",
    ["/", "//", "/..", f"/{TOKEN[:-1]}/", f"/{TOKEN}a/", f"/x/{TOKEN}/", f"/{TOKEN}/../", f"/{TOKEN}/../../etc/passwd",
     f"/{TOKEN}/%2e%2e/", f"/{TOKEN}/run.json", f"/{TOKEN}/run.json?seen=-1", f"/{TOKEN}/run.json?seen=1&x",
     f"/{TOKEN}/x", "/\xe9/", "*", f"http://127.0.0.1/{TOKEN}/", "/?" + "x" * 60_000],
)  # fmt: skip
def test_there_is_nothing_but_the_page(log, path):
    with served(log.path) as (address, _, _):
        parts = urlsplit(address)
        with socket.create_connection((parts.hostname, parts.port), 60) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode("latin-1"))
            message = b"".join(iter(lambda: connection.recv(65_536), b"")).decode()
        assert re.match(r"HTTP/1\.0 (404|400) ", message), message[:200]
        assert "DATA" not in message


def test_answers_are_kept_by_no_cache_and_shown_in_no_frame(log):
    with served(log.path) as (address, _, _):
        _, headers, page = asked(address)
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert "Access-Control-Allow-Origin" not in headers
    assert "Python" not in headers["Server"]
    assert "connect-src 'self'" in page


def test_news_are_given_when_there_are_any(log):
    with served(log.path) as (address, result, _):
        poll = f"/{TOKEN}/run.json?seen="
        assert asked(address, poll + "0")[0] == 200
        assert asked(address, poll + "1")[::2] == (204, "")
        log.trial(a_trial(1), Origin.DEFAULT)
        later = json.loads(asked(address, poll + "1")[2])
        assert (later["version"], later["over"], later["run"]["all"]) == (2, False, 1)
        result.end()
        assert json.loads(asked(address, poll + "2")[2])["over"]


def test_half_written_and_damaged_logs_are_shown_as_far_as_they_are(log):
    log.trial(a_trial(1), Origin.DEFAULT)
    whole = log.path.read_bytes()
    log.path.write_bytes(b"")
    with served(log.path) as (address, _, _):
        assert asked(address)[0] == 503
        assert asked(address, f"/{TOKEN}/run.json?seen=0")[0] == 204
        log.path.write_bytes(whole[:-5])
        first = json.loads(asked(address, f"/{TOKEN}/run.json?seen=0")[2])
        assert first["run"]["all"] == 0
        log.path.write_bytes(whole + b"\xff\xfe damaged\n")
        later = json.loads(asked(address, f"/{TOKEN}/run.json?seen={first['version']}")[2])
        assert later["run"]["all"] == 1
        for left in (b"", b"{}\n", whole[: whole.index(b"\n")]):  # what was read before stays
            log.path.write_bytes(left)
            assert asked(address)[0] == 200
        log.path.unlink()
        assert asked(address)[0] == 200


def connected(address, first=b""):
    parts = urlsplit(address)
    connection = socket.create_connection((parts.hostname, parts.port), 60)
    connection.sendall(first)
    return connection


HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize("first", [b"", b"G", HEAD, f"GET /{TOKEN}/".encode()], ids=["none", "a byte", "head", "line"])
def test_whoever_knows_the_token_is_answered_beside_any_number_of_strangers(log, monkeypatch, first):
    monkeypatch.setattr(server, "MOST_STRANGERS", 3)
    with served(log.path) as (address, _, _), contextlib.ExitStack() as held:
        strangers = [held.enter_context(connected(address, first)) for _ in range(40)]
        assert asked(address)[0] == 200
        assert strangers[0].recv(1) == b"", "the oldest has made room"
        assert asked(address)[0] == 200


def test_a_stranger_has_seconds_for_a_request_however_it_spreads_its_bytes(log):
    now_s = itertools.count(0.0, server.REQUEST_S / 4)  # at each look
    with served(log.path, lambda: next(now_s)) as (address, _, _), connected(address, HEAD) as stranger:
        stranger.settimeout(0.01)
        while goes_on(stranger):
            pass
        assert not goes_on(stranger)  # the server has hung up, and takes nothing more


@pytest.mark.parametrize(("headers", "status"), [(10, b"200"), (90, b"431")])
def test_a_head_is_read_up_to_its_limit(log, headers, status):
    lines = "".join(f"X-{n}: {'a' * 1000}\r\n" for n in range(headers))
    with served(log.path) as (address, _, _), connected(address) as page:
        page.sendall(f"GET /{TOKEN}/ HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode())
        assert page.recv(12) == b"HTTP/1.0 " + status


@pytest.mark.parametrize("begun_head", [b"", HEAD, HEAD + b"X: 1\r\n"])
def test_a_line_without_end_is_read_up_to_the_limit_of_a_head(log, begun_head):
    with served(log.path) as (address, _, _), connected(address, begun_head) as stranger:
        stranger.settimeout(60)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            stranger.sendall(b"x" * server._HEAD_BYTES)
            stranger.sendall(b"x")
            assert stranger.recv(12) in (b"", b"HTTP/1.0 431")


def goes_on(connection):
    """Whether a connection takes one more byte."""
    try:
        connection.sendall(b"x")
        return connection.recv(1) != b""
    except TimeoutError:
        return True
    except (BrokenPipeError, ConnectionResetError):
        return False


def test_a_page_that_waits_for_news_is_no_stranger(log, monkeypatch):
    monkeypatch.setattr(growing, "POLL_S", 60.0)
    monkeypatch.setattr(server, "MOST_STRANGERS", 2)
    monkeypatch.setattr(server._Answers, "timeout", 1.5)
    now_s = [0.0]
    with served(log.path, lambda: now_s[0]) as (address, result, _), contextlib.ExitStack() as held:
        page = held.enter_context(connected(address, f"GET /{TOKEN}/run.json?seen=1 HTTP/1.1\r\n".encode()))
        page.sendall(b"Host: localhost\r\n\r\n")
        assert result.followed.wait(ENOUGH_S)
        strangers = [held.enter_context(connected(address)) for _ in range(9)]
        assert strangers[0].recv(1) == b"", "all but the two newest have made room"
        now_s[0] = server.REQUEST_S
        assert [stranger.recv(1) for stranger in strangers] == [b""] * 9
        result.end()
        assert page.recv(12) == b"HTTP/1.0 200"


def test_pages_beyond_the_limit_are_told_so(log, monkeypatch):
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 0)
    with served(log.path) as (address, _, _):
        status, _, text = asked(address)
    assert (status, text) == (503, "Too many pages are open.\n")


def test_a_long_run_is_read_seldom(tmp_path, monkeypatch):
    monkeypatch.setattr(growing, "_LOOK_S", 0.01)
    begun(tmp_path)
    at_s, spent_s = itertools.count(0.0), itertools.count(0.0, 10.0)  # a reading takes ten seconds of a CPU
    log = next(tmp_path.glob("*.jsonl"))
    result = GrowingReport(log, lambda: next(at_s), lambda: next(spent_s))
    assert result.page() is not None
    log.write_bytes(log.read_bytes() + b"{}\n")
    version = result._version
    assert result.newer(version, 25.0) is None
    assert result._version == version


def test_a_page_is_told_at_once_that_a_tune_has_ended_without_a_log_that_can_be_read(tmp_path):
    looks = itertools.count()
    result = GrowingReport(tmp_path / "none.jsonl", lambda: float(next(looks)))
    result.end()
    assert result.newer(0, 1000.0) is None
    assert next(looks) < 10


class Input:
    """The input of the serving process, which ends when a page has asked."""

    def __init__(self, asked):
        self.asked = asked

    def readline(self):
        return f"{TOKEN}\n"

    def read(self):
        assert self.asked.wait(ENOUGH_S)


def test_the_serving_process_ends_only_after_its_last_answer(monkeypatch, tmp_path):
    begun_answer, shut, ended, answers = threading.Event(), threading.Event(), threading.Event(), []
    servers, shutdown = [], PageServer.shutdown

    def late_answer(*_):
        begun_answer.set()
        assert shut.wait(ENOUGH_S)
        answers.append("too late" if ended.wait(0.1) else "in time")

    monkeypatch.setattr(watching, "_DRAIN_S", 60.0)
    monkeypatch.setattr(watching.Child, "die_with", lambda parent: None)
    monkeypatch.setattr(watching.os, "nice", lambda by: None)
    monkeypatch.setattr(PageServer, "shutdown", lambda self: (shutdown(self), servers.append(self), shut.set()))
    monkeypatch.setattr(GrowingReport, "answer", late_answer)
    bound = socket.create_server(("127.0.0.1", 0))
    address = PageServer.address_of(bound, TOKEN)
    monkeypatch.setattr(sys, "argv", ["", "0", "0", str(bound.detach()), str(tmp_path / "run.jsonl")])
    monkeypatch.setattr(sys, "stdin", Input(begun_answer))
    page = threading.Thread(target=asked, args=(address,))
    page.start()  # the socket listens already
    watching.main()
    ended.set()
    page.join()
    servers[0].server_close()
    assert answers == ["in time"]


REFUSED = {
    "several runs": (("--watch", "--from-misses"), "--from-misses makes several"),
    "a port alone": (("quick.py:run", "--watch-port", "80"), "--watch-port is for --watch"),
    "no port": (("quick.py:run", "--watch", "--watch-port", "65536"), "65536 is no port"),
}


@pytest.mark.parametrize(("words", "said"), REFUSED.values(), ids=REFUSED)
def test_what_makes_no_sense_is_refused_before_any_work(cli, words, said, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quick.py").write_text("def run(n, *, m=1):\n    return n\n", encoding="utf-8")
    refused = cli("tune", *words)
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert said in refused.err


def test_a_port_that_is_taken_is_refused_and_a_known_winner_is_told(cli, tmp_path, steady_clock):
    (tmp_path / "quick.py").write_text("def run(n):\n    return n\n", encoding="utf-8")
    words = ("tune", f"{tmp_path / 'quick.py'}:run", "--space", "n=1,2")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = cli(*words, "--watch", "--watch-port", taken.getsockname()[1])
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert cli(*words).code == 0
    known = cli(*words, "--watch", "--json")
    assert (known.code, known.err) == (0, known.err)
    assert "--watch: the winner was known" in known.err
    assert json.loads(known.out)["from_cache"]


def test_a_run_without_a_log_says_that_there_is_nothing_to_watch_and_is_followed_by_its_own_listener():
    told, listener = [], create_autospec(Listener, instance=True)
    plan, trial, progress, result = create_autospec(RunPlan, log=None), object(), object(), object()
    with watching.watched(listener, 0, told.append) as passing_on:
        passing_on.started(plan)
        passing_on.tried(trial, progress)
        passing_on.ended(result)
    assert told == ["--watch: this run keeps no log, so that there is nothing to watch"]
    assert listener.mock_calls == [call.started(plan), call.tried(trial, progress), call.ended(result)]
