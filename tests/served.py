"""A static HTTP server of Python's own library and an S3 server, each in a thread, and pairs of keys."""

from __future__ import annotations

import hashlib
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat


class Served:
    """What an HTTP server serves by path, and the requests that it has got, as (path, headers, status)."""

    def __init__(self, scheme, port, ended):
        self.url, self.ended = f"{scheme}://localhost:{port}", ended
        self.contents, self.redirects, self.missing_bytes, self.requests = {}, {}, {}, []
        self.hanging, self.dripping = set(), set()

    def serve(self, path, content):
        self.contents[path] = content.encode() if isinstance(content, str) else content
        return self.url + path

    def statuses(self, path):
        return [status for asked, _, status in self.requests if asked == path]


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def _begin(self, status, *headers):
        self.served.requests.append((self.path, dict(self.headers), status))
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()

    def do_GET(self):
        served, path = self.served, self.path.partition("?")[0]
        if path in served.hanging:
            served.ended.wait()
        elif path in served.redirects:
            self._begin(302, ("Location", served.redirects[path]), ("Content-Length", "0"))
        elif (content := served.contents.get(path)) is None:
            self._begin(404, ("Content-Length", "0"))
        elif self.headers.get("If-None-Match") == (etag := f'"{hashlib.sha256(content).hexdigest()}"'):
            self._begin(304, ("ETag", etag))
        else:
            length = len(content) + served.missing_bytes.get(path, 0)
            self._begin(200, ("ETag", etag), ("Content-Length", str(length)))
            if path not in served.dripping:
                self.wfile.write(content)
            while path in served.dripping and not served.ended.is_set():
                self.wfile.write(b" ")
                time.sleep(0.1)


@contextmanager
def http_server(context=None):
    """Serve on a free port of this machine, with TLS by an `ssl.SSLContext`."""
    handler = type("Handler", (_Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads, server.block_on_close = True, False
    server.handle_error = lambda *_: None  # clients give up before the end
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    handler.served = Served("http" if context is None else "https", server.server_port, Event())
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield handler.served
    finally:
        handler.served.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


def pem(folder, name):
    """A new pair of keys, as two files: the private key and the public one."""
    key, paths = Ed25519PrivateKey.generate(), (folder / f"{name}.pem", folder / f"{name}.pub")
    paths[0].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    paths[1].write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return paths
