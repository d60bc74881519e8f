"""A server on loopback that speaks as much of S3 as a log store uses, keeps what it was asked, and fails on order."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from lakelog.storage import s3_probe, s3_requests
from lakelog.storage.environment import Environment

TIME = "2026-01-02T03:04:05.678Z"
TIME_MS = 1_767_323_045_678


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What befalls one request.

    Args:
        status, code: the answer; 0 for none.
        done: the request is carried out nevertheless.
        headers: of the answer.
        cut: the answer's body lacks so many bytes.
        body: instead of an error of S3.
    """

    status: int = 0
    code: str = ""
    done: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    cut: int = 0
    body: bytes | None = None


LOST_REQUEST = Fault()
LOST_ANSWER = Fault(done=True)
SLOW_DOWN = Fault(status=503, code="SlowDown")
BUSY = Fault(status=409, code="ConditionalRequestConflict")


@dataclass(frozen=True)
class Asked:
    """One request as it came."""

    method: str
    key: str
    query: dict[str, str]
    headers: dict[str, str]

    def __repr__(self) -> str:
        kind = "LIST" if "list-type" in self.query else "POST ?delete" if "delete" in self.query else self.method
        return f"{kind} {self.query.get('prefix', self.key)}"


class FakeS3:
    """The server's state.

    Attributes:
        objects: by key, of the one bucket that there is.
        asked: all requests.
        faults: taken by the requests in their order; None: nothing befalls it.
        befalls: says what befalls a request where no fault is left.
        conditional: honours If-None-Match.
        ordered: lists in order and knows StartAfter.
        amend: changes a listing before it is sent.
    """

    def __init__(self) -> None:
        self.url = ""
        self.lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """A new server at the old address."""
        self.objects: dict[str, bytes] = {}
        self.asked: list[Asked] = []
        self.faults: list[Fault | None] = []
        self.befalls: Callable[[Asked], Fault | None] = lambda _: None
        self.conditional = True
        self.ordered = True
        self.page = 1000
        self.amend: Callable[[str, Asked], str] = lambda listing, _: listing

    @property
    def log(self) -> list[str]:
        """The requests in short, in order; taking them forgets them."""
        taken, self.asked = self.asked, []
        return [repr(asked) for asked in taken]

    def answer(self, asked: Asked, body: bytes) -> tuple[int, bytes]:
        with self.lock:
            match asked.method:
                case "PUT":
                    if self.conditional and asked.headers.get("if-none-match") == "*" and asked.key in self.objects:
                        return 412, _error("PreconditionFailed")
                    self.objects[asked.key] = body
                    return 200, b""
                case "DELETE":
                    self.objects.pop(asked.key, None)
                    return 204, b""
                case "POST":
                    for key in ElementTree.fromstring(body).iter():
                        if key.tag.endswith("Key"):
                            self.objects.pop(key.text or "", None)
                    return 200, b"<DeleteResult/>"
            if "list-type" in asked.query:
                return 200, self.amend(self._listing(asked.query).decode(), asked).encode()
            if asked.key not in self.objects:
                return 404, _error("NoSuchKey")
            return 200, self.objects[asked.key]

    def _listing(self, query: dict[str, str]) -> bytes:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        after = query.get("continuation-token") or (query.get("start-after", "") if self.ordered else "")
        found: list[tuple[str, bool]] = []
        for key in sorted(self.objects) if self.ordered else list(self.objects):
            if not key.startswith(prefix):
                continue
            cut = key.find(delimiter, len(prefix)) if delimiter else -1
            entry = (key, False) if cut < 0 else (key[: cut + 1], True)
            if entry not in found:
                found.append(entry)
        if self.ordered:
            found = [entry for entry in found if entry[0] > after]
        elif after:
            found = found[int(after) :]
        size = min(self.page, int(query.get("max-keys", "1000")))
        page, more = found[:size], len(found) > size
        parts = [f"<Name>b</Name><KeyCount>{len(page)}</KeyCount><IsTruncated>{'true' if more else 'false'}</IsTruncated>"]
        parts.append("<EncodingType>url</EncodingType>")
        if more:
            token = page[-1][0] if self.ordered else str(int(after or 0) + size)
            parts.append(f"<NextContinuationToken>{escape(token)}</NextContinuationToken>")
        for key, is_folder in page:
            name = quote(key, safe="/")
            if is_folder:
                parts.append(f"<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>")
            else:
                size_of = len(self.objects[key])
                parts.append(f"<Contents><Key>{name}</Key><LastModified>{TIME}</LastModified><Size>{size_of}</Size></Contents>")
        return f"<ListBucketResult>{''.join(parts)}</ListBucketResult>".encode()


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>said so</Message></Error>".encode() if code else b""


@contextmanager
def fake_s3() -> Iterator[FakeS3]:
    """A server that runs."""
    state = FakeS3()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # One packet an answer: of two, the second waits for the first's receipt.
        wbufsize = 1 << 16
        disable_nagle_algorithm = True

        def handle_any(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
            _, _, key = unquote(parts.path).lstrip("/").partition("/")
            asked = Asked(self.command, key, query, {name.lower(): value for name, value in self.headers.items()})
            with state.lock:
                state.asked.append(asked)
                ordered = state.faults.pop(0) if state.faults else state
            fault = state.befalls(asked) if isinstance(ordered, FakeS3) else ordered
            status, answer = 200, b""
            if fault is None or fault.done or fault.cut:
                status, answer = state.answer(asked, body)
            if fault is not None and not fault.cut:
                if not fault.status:
                    self.close_connection = True
                    return
                status, answer = fault.status, _error(fault.code) if fault.body is None else fault.body
            self.send_response(status)
            for name, value in (fault.headers if fault else {}).items():
                self.send_header(name, value)
            if self.command in ("PUT", "GET", "HEAD") and status == 200 and (fault is None or fault.body is None):
                self.send_header("ETag", f'"{hashlib.md5(body if self.command == "PUT" else answer).hexdigest()}"')
            self.send_header("Content-Length", "0" if status == 204 else str(len(answer)))
            if self.command in ("GET", "HEAD"):
                self.send_header("Last-Modified", "Fri, 02 Jan 2026 03:04:05 GMT")
            self.end_headers()
            if self.command != "HEAD" and status != 204:
                self.wfile.write(answer[: len(answer) - fault.cut] if fault else answer)
            if fault is not None and fault.cut:
                self.close_connection = True

        do_GET = do_PUT = do_DELETE = do_POST = do_HEAD = handle_any

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield state
    finally:
        forget(url=state.url)
        server.shutdown()
        server.server_close()
        thread.join()


def forget(url: str | None = None) -> None:
    """Make this process one that has not asked anything yet, or not at this address."""
    for key, shared in list(s3_requests._clients.items()):
        if url in (None, shared.client.meta.endpoint_url):
            shared.client.close()
            del s3_requests._clients[key]
    s3_probe._known.clear()
    s3_probe._looked.clear()


@dataclass(kw_only=True)
class Waits:
    """An environment that does not wait."""

    slept: list[float] = field(default_factory=list)
    uuids: int = 0
    now_ms: int = 0

    def environment(self) -> Environment:
        return Environment(
            now_ms=lambda: self.now_ms,
            sleep=self.slept.append,
            random=lambda: 1.0,
            new_uuid=self._uuid,
            parallel=lambda function, items: map(function, items),
        )

    def _uuid(self) -> str:
        self.uuids += 1
        return f"u{self.uuids}"
