"""The server of a page answers who knows the token, on this machine, and gives strangers seconds."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading

import pytest

from tests.limits import ENOUGH_S
from triton_ops.exceptions import SettingsError
from triton_ops.terminal import PageServer, page_server

PAGES = {"": (http.HTTPStatus.OK, "the page ü", "text/html"), "news?from=3": (http.HTTPStatus.OK, "[]", "text/json")}


@contextlib.contextmanager
def served(clock=None):
    more = () if clock is None else (clock,)
    with PageServer.listening(0, "--port") as bound, PageServer(bound, "secret", PAGES.get, *more) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def asked(server, path, method="GET", host="127.0.0.1:99"):
    connection = http.client.HTTPConnection(*server.server_address, timeout=ENOUGH_S)
    with contextlib.closing(connection):
        connection.putrequest(method, path, skip_host=True)
        for each in [host] if isinstance(host, str) else host:
            connection.putheader("Host", each)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), dict(answer.headers)


def test_a_page_and_its_data_are_answered_below_the_token():
    with served() as server:
        status, text, headers = asked(server, "/secret/")
        assert (status, text, headers["Content-Type"]) == (200, "the page ü", "text/html; charset=utf-8")
        assert headers["Content-Length"] == str(len("the page ü".encode()))
        assert {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}.items() <= headers.items()
        assert asked(server, "/secret/news?from=3")[:2] == (200, "[]")
        assert asked(server, "/secret/none")[0] == 404
        assert asked(server, "/secret/", "HEAD")[:2] == (200, "")


def test_the_folder_without_its_slash_leads_to_the_page():
    with served() as server:
        status, _, headers = asked(server, "/secret")
        assert (status, headers["Location"]) == (301, "/secret/")


@pytest.mark.parametrize("path", ["/", "/secre/", "/secrets/", "/Secret/", "/none/secret/"])
def test_who_does_not_know_the_token_is_told_nothing(path):
    with served() as server:
        assert asked(server, path)[:2] == (404, "Not found.\n")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200), ("LOCALHOST:1", 200), (" 127.0.0.1 ", 200), ("evil.example", 403), ("127.0.0.1.evil", 403),
        ("localhost:123456", 403), ([], 403), (["localhost", "localhost"], 403),
    ],
)  # fmt: skip
def test_only_a_name_of_this_machine_is_answered(host, status):
    with served() as server:
        assert asked(server, "/secret/", host=host)[0] == status


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_nothing_can_be_changed(method):
    with served() as server:
        status, _, headers = asked(server, "/secret/", method)
        assert (status, headers["Allow"]) == (405, "GET, HEAD")


def test_a_head_that_is_too_long_is_no_request():
    with served() as server, socket.create_connection(server.server_address, 20) as stranger:
        with contextlib.suppress(OSError):
            stranger.sendall(b"GET / HTTP/1.1\r\n" + b"A: " + b"x" * (80 << 10) + b"\r\n\r\n")
        stranger.settimeout(20)
        with contextlib.suppress(ConnectionError):
            assert b" 200 " not in stranger.recv(1 << 16)


def test_a_stranger_is_cut_off_when_its_seconds_are_over():
    now = [100.0]
    with served(lambda: now[0]) as server, socket.create_connection(server.server_address, 20) as stranger:
        stranger.sendall(b"GET /")
        stranger.settimeout(0.2)
        with pytest.raises(TimeoutError):
            stranger.recv(1)
        now[0] += page_server.REQUEST_S
        stranger.settimeout(20)
        with contextlib.suppress(ConnectionError):
            assert stranger.recv(1) == b""


def test_the_oldest_stranger_makes_room_for_a_newer_one_and_readers_are_answered(monkeypatch):
    monkeypatch.setattr(page_server, "MOST_STRANGERS", 2)
    with served(lambda: 100.0) as server, contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(socket.create_connection(server.server_address, 20)) for _ in range(3)]
        for one in strangers:
            one.settimeout(20)
        with contextlib.suppress(ConnectionError):
            assert strangers[0].recv(1) == b""
        for one in strangers[1:]:
            one.settimeout(0.1)
            with pytest.raises(TimeoutError):
                one.recv(1)
        assert asked(server, "/secret/")[0] == 200


def test_too_many_readers_are_refused_and_the_next_one_is_answered_when_one_has_gone(monkeypatch):
    monkeypatch.setattr(page_server, "MOST_CONNECTIONS", 1)
    begun, goes_on = threading.Event(), threading.Event()

    def slow(name):
        begun.set()
        assert goes_on.wait(ENOUGH_S)
        return PAGES[""]

    with served() as server:
        server.answer = slow
        first = threading.Thread(target=asked, args=(server, "/secret/"))
        first.start()
        assert begun.wait(ENOUGH_S)
        assert asked(server, "/secret/")[:2] == (503, "Too many pages are open.\n")
        goes_on.set()
        first.join()
        server.drain(20)
        assert asked(server, "/secret/")[0] == 200


@pytest.mark.parametrize("port", [-1, 65_536])
def test_what_is_no_port_is_refused(port):
    with pytest.raises(SettingsError, match=f"--page {port} is no port"):
        PageServer.listening(port, "--page")


def test_a_port_in_use_is_refused_and_the_largest_one_is_a_port():
    with PageServer.listening(0, "--page") as bound:
        port = bound.getsockname()[1]
        with pytest.raises(SettingsError, match=f"port {port} of 127.0.0.1 cannot be used") as refused:
            PageServer.listening(port, "--page")
        assert refused.value.hint == "leave --page out"
        assert PageServer.address_of(bound, "t") == f"http://127.0.0.1:{port}/t/"
    with contextlib.suppress(SettingsError), PageServer.listening(65_535, "--page") as bound:
        assert bound.getsockname() == ("127.0.0.1", 65_535)


def test_no_two_tokens_are_alike():
    assert len({PageServer.new_token() for _ in range(50)}) == 50
    assert all(len(PageServer.new_token()) >= 32 for _ in range(5))
