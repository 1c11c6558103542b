"""What URLs serve: fetched once, judged, and kept on this machine under the SHA-256 of its content.

A content is used if a trusted key has signed it, or if the URL names its SHA-256, as `…#sha256=DIGITS`. It is data:
each record and entry in it passes the checks of those in any file. What is kept is judged again by each process, and
its ETag spares a second transfer.

`https://` is read by Python itself, and every other scheme by fsspec, `s3://` with credentials as its own library finds
them. Nothing of the environment is sent, and no message has the part of a URL that may be secret. Neither a redirect
nor a URL leads from `https://` to another scheme; `http://` is for this machine alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
import time
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from triton_ops import settings
from triton_ops.base import (
    DamagedError,
    Folder,
    NamedFile,
    Sealed,
    SealedFile,
    StoredFile,
    fingerprint,
    require,
    warn_once,
)
from triton_ops.exceptions import CacheError, TritonKernelError
from triton_ops.records.signing import why_untrusted
from triton_ops.settings import expanded, is_url, shown

T = TypeVar("T")

_LARGEST_BYTES = 64 << 20  # 15,000 records, 30,000 entries
_START_S = 2.0  # after its begin nobody who launches waits for a fetch
_COMMAND_S = 60.0
_SILENT_S = 10.0  # a server that sends nothing for so long has gone
_PLAIN_HOSTS = ("localhost", "127.0.0.1", "::1")
_PINNED = re.compile(r"sha256=([0-9a-f]{64})")


class Source:
    """What a URL serves. CacheError: the URL has a password, or is of a kind that is not read."""

    def __init__(self, url: str) -> None:
        self.url, _, fragment = url.partition("#")
        self.shown = shown(url)
        self.folder = Path(settings.cache_folder(None))
        pinned = _PINNED.fullmatch(fragment)
        if fragment and pinned is None:
            message = f"{self.shown}: what follows its # is no digest"
            raise CacheError(message, hint="#sha256= and 64 hexadecimal digits name the content, or leave it out")
        self._digest = pinned[1] if pinned else ""
        with CacheError.when(self.shown, "write scheme://host/path", ValueError):
            parts = urlsplit(self.url)
            self._is_http = parts.scheme in ("http", "https")
            if parts.password is not None or (self._is_http and parts.username):
                raise ValueError("it has a user or a password, which a URL should not")
            if self._is_http:
                _check_scheme(self.url)
        if not self._is_http:
            self._fsspec = require("fsspec", f"{parts.scheme}://")
            if parts.scheme == "s3":  # imported here, since it takes longer than most answers
                require("s3fs", "s3://")

    def fetch(self) -> Path:
        """The copy of what is served now; CacheError: it cannot be had, or is not to be believed."""
        etag, kept = self._kept()
        content, etag = (None, "") if kept and self._digest else self._content(etag if kept else "")
        if content is None and kept:
            return kept
        self._judge(content or b"")
        digest = hashlib.sha256(content or b"").hexdigest()
        with CacheError.when(f"{self.shown} cannot be kept in {self.folder}", "set TRITON_OPS_CACHE_DIR"):
            sources = Folder(self._sources).ensure(Folder(self.folder).ensure())
            Folder(sources).sweep()
            StoredFile(sources / f"{digest}.json").replace(content or b"")
        self._pointer.keep({"url": self.shown, "etag": etag, "sha256": digest})
        return self._sources / f"{digest}.json"

    @property
    def kept(self) -> Path | None:
        """The copy of what was served last; None if there is none that is to be believed."""
        return self._kept()[1]

    def write(self, content: bytes) -> None:
        """Put a content in the place of what is served; CacheError: it cannot be put there."""
        if self._is_http:
            message = f"{self.shown} is only read"
            raise CacheError(message, hint="write a file, or to s3://, and have it served from there")
        with _reported(f"{self.shown} cannot be written", self.url):
            system, path = self._fsspec.core.url_to_fs(self.url)
            system.pipe_file(path, content)

    @property
    def _sources(self) -> Path:
        return self.folder / "sources"

    @property
    def _pointer(self) -> SealedFile:
        return SealedFile(self._sources / f"{fingerprint(self.url)}.url.json", self.folder)

    def _kept(self) -> tuple[str, Path | None]:
        if self._digest:
            return "", self._copy(self._digest)
        try:
            last = self._pointer.read(dict[str, str])
            return last["etag"], self._copy(last["sha256"])
        except (OSError, KeyError):
            return "", None

    def _copy(self, digest: str) -> Path | None:
        path = self._sources / f"{digest}.json"
        try:
            Folder(self._sources).within(self.folder)
            content = StoredFile(path).read(_LARGEST_BYTES)
            self._judge(content)
        except (OSError, CacheError):
            return None
        return path if hashlib.sha256(content).hexdigest() == digest else None

    def _judge(self, content: bytes) -> None:
        """Refuse a content that is not the one that the URL names, or else not signed by a trusted key."""
        digest = hashlib.sha256(content).hexdigest()
        if self._digest:
            if digest != self._digest:
                message = f"{self.shown} serves another content than the one that is named: its SHA-256 is {digest}"
                raise CacheError(message, hint="correct the digest only if you trust that content")
            return
        with CacheError.when(f"{self.shown} is not used", "export it again", DamagedError, RecursionError):
            why = why_untrusted(Sealed.parsed(content))
        if why:
            hint = f"TRITON_OPS_TRUSTED_KEYS names files of public keys; or ask for this content: …#sha256={digest}"
            raise CacheError(f"{self.shown} is not used: {why}", hint=hint)

    def _content(self, etag: str) -> tuple[bytes | None, str]:
        """What is served, None if it is that of an ETag; and its ETag."""
        with _reported(f"{self.shown} cannot be fetched", self.url):
            return self._by_http(etag) if self._is_http else self._by_fsspec(etag)

    def _by_http(self, etag: str) -> tuple[bytes | None, str]:
        request = Request(self.url, headers={"User-Agent": "triton-ops", **({"If-None-Match": etag} if etag else {})})
        try:
            with build_opener(_Redirects).open(request, timeout=_SILENT_S) as answer:
                content = _limited(answer)
                if answer.length:
                    raise OSError(f"it ended {answer.length} bytes before the length that was announced")
                return content, answer.headers.get("ETag", "")
        except HTTPError as error:
            error.close()
            if error.code == 304:
                return None, etag
            raise (FileNotFoundError if error.code in (404, 410) else OSError)(f"HTTP {error.code}") from error

    def _by_fsspec(self, etag: str) -> tuple[bytes | None, str]:
        system, path = self._fsspec.core.url_to_fs(self.url)
        system.invalidate_cache()
        now = str(system.info(path).get("ETag") or system.ukey(path))
        if now == etag:
            return None, etag
        with system.open(path, "rb") as file:
            return _limited(file), now


def _check_scheme(url: str, was: str = "") -> None:
    parts = urlsplit(url)
    is_plain = parts.scheme == "http" and parts.hostname in _PLAIN_HOSTS and not was.startswith("https:")
    if parts.scheme != "https" and not is_plain:
        where = f"{'it leads to' if was else 'it is'} {parts.scheme}:"
        raise ValueError(f"{where}; read are https://, and http:// of this machine alone")


class _Redirects(HTTPRedirectHandler):
    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        with contextlib.ExitStack() as refused:
            refused.callback(fp.close)
            _check_scheme(newurl, req.full_url)
            refused.pop_all()
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _limited(file: Any) -> bytes:
    content: bytes = file.read(_LARGEST_BYTES + 1)
    if len(content) > _LARGEST_BYTES:
        raise OSError(f"it is larger than {_LARGEST_BYTES} bytes, the most that is read")
    return content


@contextlib.contextmanager
def _reported(what: str, url: str) -> Any:
    """Inside, whatever a library raises is a CacheError, without the part of the URL that may be secret."""
    try:
        yield
    except Exception as error:
        reason = error.reason if isinstance(error, URLError) else error
        kind = "" if isinstance(reason, (OSError, ValueError)) else f"{type(reason).__name__}: "
        text = f"{kind}{getattr(reason, 'strerror', None) or reason}".replace(url, shown(url))
        raise CacheError(f"{what}: {text}", hint="check the address, the network and your rights") from error


class Fetch:
    """The fetch of a URL in a thread, and what is made of its copy."""

    BEGUN: ClassVar[dict[tuple[int, str, str], Fetch]] = {}
    """By process, which a thread does not outlive, by cache folder and by URL."""

    def __init__(self, url: str, make: Callable[[Path], Path]) -> None:
        self.source, self._make = Source(url), make
        self._chosen: Path | None = None
        self._until_s = time.monotonic() + _START_S
        self._outcome = _begun(lambda: make(self.source.fetch()))

    @staticmethod
    def begun(url: str, make: Callable[[Path], Path] = lambda copy: copy) -> Fetch:
        """That of a URL in this process, which begins it once; CacheError as of `Source`."""
        place = os.getpid(), settings.cache_folder(None), url
        if (fetch := Fetch.BEGUN.get(place)) is None:
            fetch = Fetch.BEGUN[place] = Fetch(url, make)
        return fetch

    def result(self, wait_s: float) -> Path:
        """What was made; CacheError after so many seconds, and as of `Source.fetch`."""
        return _awaited(self._outcome, wait_s, self.source)

    def at_start(self) -> Path:
        """What was made by now, else of the copy that was kept before, else within two seconds of the begin.

        It stays what it is. CacheError as of `result`, if there is no copy.
        """
        if self._chosen is not None:
            return self._chosen
        kept = self.source.kept
        try:
            self._chosen = self.result(0.0 if kept else max(0.0, self._until_s - time.monotonic()))
        except TritonKernelError as error:
            if kept is None:
                raise
            if self._outcome.done():
                warn_once(f"{error}; the copy on this machine is used")
            self._chosen = self._make(kept)
        return self._chosen


def _begun(work: Callable[[], T]) -> futures.Future[T]:
    """The outcome of what a thread does, for which the end of the process does not wait."""
    outcome = futures.Future[T]()

    def run() -> None:
        try:
            outcome.set_result(work())
        except TritonKernelError as error:
            outcome.set_exception(error)

    threading.Thread(target=run, name="triton-ops source", daemon=True).start()
    return outcome


def _awaited(outcome: futures.Future[T], wait_s: float, source: Source) -> T:
    try:
        return outcome.result(wait_s)
    except futures.TimeoutError as error:
        message = f"{source.shown} has not answered in time"
        raise CacheError(message, hint="check the address and the network, and try again") from error


def local_path(place: str | os.PathLike[str]) -> Path:
    """A path with `~` expanded, or the copy of what a URL serves now; CacheError within a minute, as of `Source`."""
    return Fetch(place, lambda copy: copy).result(_COMMAND_S) if is_url(place) else expanded(place)


def write_at(place: str | os.PathLike[str], text: str) -> None:
    """Write a text to a file that a person has named, or within a minute to a URL; OSError or CacheError."""
    if is_url(place):
        source = Source(place)
        _awaited(_begun(lambda: source.write(text.encode())), _COMMAND_S, source)
    else:
        NamedFile(expanded(place)).write(text)
