"""The fault proxy in front of a store of a few lines: what passes unchanged, and what each fault does to either side."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from integration.proxy import Fault, FaultProxy, Plan, Rule, kind_of

LISTING = (
    b"<R><KeyCount>3</KeyCount><Contents><Key>a</Key></Contents><Contents><Key>b</Key></Contents><Contents><Key>c</Key></Contents></R>"
)
COMMIT = "/bucket/t/_delta_log/00000000000000000007.json"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Store

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline() != b"\r\n":
            pass
        return body

    def _answer(self, status: int, body: bytes = b"", *, chunked: bool = False) -> None:
        self.send_response(status)
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
            body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:5], body[5:]) if part) + b"0\r\nX-Trailer: 1\r\n\r\n"
        else:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _any(self) -> None:
        store, body = self.server, self._body()
        store.heard.append((self.command, self.path, dict(self.headers), body))
        if self.command == "PUT":
            if self.path in store.objects and self.headers.get("If-None-Match") == "*":
                self._answer(412)
            else:
                store.objects[self.path] = body
                self._answer(200)
        elif "list-type" in self.path:
            self._answer(200, LISTING, chunked=True)
        elif self.path in store.objects:
            self._answer(200, store.objects[self.path])
        else:
            self._answer(404, b"no such key")
        store.done.set()

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _any

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Store(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.heard: list[tuple[str, str, dict[str, str], bytes]] = []
        self.objects: dict[str, bytes] = {}
        self.done = threading.Event()

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that the proxy cut is no trouble of the store's."""


@pytest.fixture
def store() -> Iterator[_Store]:
    with _Store() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def _proxy(store: _Store, *rules: Rule, seed: int = 0, latency_s: float = 0.0) -> FaultProxy:
    return FaultProxy(f"http://127.0.0.1:{store.server_address[1]}", Plan(*rules, seed=seed), latency_s=latency_s)


def _client(proxy: FaultProxy) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(proxy.url).netloc, timeout=10)


def _ask(
    client: http.client.HTTPConnection, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
) -> tuple[int, bytes]:
    client.request(method, path, body, headers or {})  # type: ignore[arg-type]
    answer = client.getresponse()
    return answer.status, answer.read()


def test_requests_pass_as_they_are_on_one_connection(store: _Store) -> None:
    with _proxy(store) as proxy, closing(_client(proxy)) as client:
        assert _ask(client, "PUT", "/bucket/a%20b%2Bc?x=%2F&y", b"bytes \x00\xff", {"X-Amz-Date": "now"}) == (200, b"")
        first = client.sock
        assert _ask(client, "PUT", "/bucket/chunked", iter([b"one", b"two"]), {"Trailer": "X"}) == (200, b"")
        assert _ask(client, "GET", "/bucket/chunked") == (200, b"onetwo")
        assert _ask(client, "HEAD", "/bucket/chunked") == (200, b"")
        assert _ask(client, "GET", "/bucket/none") == (404, b"no such key")
        assert _ask(client, "GET", "/bucket?list-type=2&prefix=t") == (200, LISTING)
        assert client.sock is first
    method, path, headers, body = store.heard[0]
    assert (method, path, body) == ("PUT", "/bucket/a%20b%2Bc?x=%2F&y", b"bytes \x00\xff")
    assert headers["Host"] == urlsplit(proxy.url).netloc
    assert headers["X-Amz-Date"] == "now"
    assert proxy.counts == {"PUT other": 2, "GET": 2, "HEAD": 1, "LIST": 1}


def test_a_client_that_waits_to_be_asked_for_the_body_is_asked(store: _Store) -> None:
    with _proxy(store) as proxy, socket.create_connection(("127.0.0.1", urlsplit(proxy.url).port or 0), timeout=10) as client:
        client.sendall(b"PUT /bucket/x HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"body")
        assert client.recv(100).startswith(b"HTTP/1.1 200 ")
    assert store.objects == {"/bucket/x": b"body"}
    assert len(store.heard) == 1


@pytest.mark.parametrize(
    ("method", "target", "kind"),
    [
        ("PUT", COMMIT, "PUT commit"),
        ("PUT", "/bucket/a%20b/%5Fdelta_log/00000000000000000007.json", "PUT commit"),
        ("PUT", "/bucket/t/_delta_log/_last_checkpoint", "PUT other"),
        ("PUT", "/bucket/t/_delta_log/.tmp/00000000000000000007.json", "PUT other"),
        ("GET", COMMIT, "GET"),
        ("GET", "/bucket?list-type=2&prefix=t%2F", "LIST"),
        ("GET", "/container?restype=container&comp=list", "LIST"),
        ("POST", "/bucket?delete", "POST"),
    ],
)
def test_kinds(method: str, target: str, kind: str) -> None:
    assert kind_of(method, target) == kind


@pytest.mark.parametrize(
    ("fault", "arrives"),
    [
        (Fault.RESET_BEFORE, 0),
        (Fault.RESET_IN_BODY, 0),
        (Fault.LOSE_ANSWER, 1),
        (Fault.RESET_AFTER, 1),
    ],
)
def test_a_cut_connection_and_what_the_store_has_of_it(store: _Store, fault: Fault, arrives: int) -> None:
    with _proxy(store, Rule(fault, kind="PUT commit", nth=2)) as proxy:
        with closing(_client(proxy)) as client:
            assert _ask(client, "PUT", COMMIT, b"first")[0] == 200
            with pytest.raises(ConnectionError):
                _ask(client, "PUT", COMMIT + "?x", b"second")
        # The next is none of the rule's.
        with closing(_client(proxy)) as client:
            assert _ask(client, "GET", COMMIT) == (200, b"first")
    assert len([path for method, path, *_ in store.heard if method == "PUT"]) == 1 + arrives
    assert (COMMIT + "?x" in store.objects) is bool(arrives)
    assert proxy.struck == {fault.value: 1}
    assert proxy.counts["PUT commit"] == 2


def test_a_late_request_arrives_after_its_client_has_gone(store: _Store) -> None:
    with _proxy(store, Rule(Fault.LATE, method="PUT")) as proxy:
        with closing(_client(proxy)) as client, pytest.raises(ConnectionError):
            _ask(client, "PUT", COMMIT, b"late")
        assert store.done.wait(10)
    assert store.objects == {COMMIT: b"late"}


def test_a_request_delivered_twice_is_answered_as_the_second(store: _Store) -> None:
    with _proxy(store, Rule(Fault.TWICE, method="PUT")) as proxy, closing(_client(proxy)) as client:
        assert _ask(client, "PUT", COMMIT, b"once", {"If-None-Match": "*"})[0] == 412
    assert [body for method, _, _, body in store.heard if method == "PUT"] == [b"once", b"once"]
    assert proxy.counts["PUT commit"] == 1


def test_slow_down_is_said_without_asking_the_store(store: _Store) -> None:
    with _proxy(store, Rule(Fault.SLOW_DOWN, seconds=3, times=2)) as proxy, closing(_client(proxy)) as client:
        client.request("PUT", COMMIT, b"x")
        answer = client.getresponse()
        assert (answer.status, answer.headers["Retry-After"]) == (503, "3")
        assert b"<Code>SlowDown</Code>" in answer.read()
        assert _ask(client, "HEAD", COMMIT) == (503, b"")
        assert _ask(client, "PUT", COMMIT, b"x")[0] == 200
    assert len(store.heard) == 1


def test_a_truncated_body_is_shorter_than_was_said(store: _Store) -> None:
    store.objects["/bucket/x"] = b"0123456789"
    with _proxy(store, Rule(Fault.TRUNCATE, method="GET")) as proxy:
        for path, half in (("/bucket/x", b"01234"), ("/bucket?list-type=2", LISTING[:5])):
            with closing(_client(proxy)) as client:
                client.request("GET", path)
                answer = client.getresponse()
                with pytest.raises(http.client.IncompleteRead) as cut:
                    answer.read()
                assert cut.value.partial.startswith(half)


def test_a_slow_body_comes_whole(store: _Store) -> None:
    store.objects["/bucket/x"] = bytes(1000)
    with _proxy(store, Rule(Fault.SLOW_BODY, method="GET", seconds=0.05)) as proxy, closing(_client(proxy)) as client:
        assert _ask(client, "GET", "/bucket/x") == (200, bytes(1000))
        assert _ask(client, "GET", "/bucket?list-type=2") == (200, LISTING)


def test_listings_twice_and_shuffled(store: _Store) -> None:
    names = (b"a", b"b", b"c")
    with _proxy(store, Rule(Fault.LISTING_TWICE, kind="LIST")) as proxy, closing(_client(proxy)) as client:
        _, body = _ask(client, "GET", "/bucket?list-type=2")
        assert [body.count(b"<Key>%s</Key>" % name) for name in names] == [2, 2, 2]
        assert body.startswith(b"<R><KeyCount>3</KeyCount>")
        assert body.endswith(b"</R>")
        proxy.plan = Plan(Rule(Fault.LISTING_SHUFFLED, kind="LIST"), seed=1)
        seen = {_ask(client, "GET", "/bucket?list-type=2")[1] for _ in range(30)}
        assert all(sorted(body) == sorted(LISTING) for body in seen)
        assert len(seen) == 6


def test_chances_follow_the_seed(store: _Store) -> None:
    def fates(seed: int) -> list[int]:
        rule = Rule(Fault.SLOW_DOWN, path="^/bucket/x$", probability=0.5)
        with _proxy(store, rule, seed=seed) as proxy, closing(_client(proxy)) as client:
            return [_ask(client, "GET", path)[0] for _ in range(20) for path in ("/bucket/x", "/bucket/y")]

    assert fates(1) == fates(1)
    assert fates(1) != fates(2)
    assert set(fates(1)[::2]) == {503, 404}
    assert set(fates(1)[1::2]) == {404}


def test_latency_is_added_to_every_request(store: _Store) -> None:
    with _proxy(store, latency_s=0.02) as proxy, closing(_client(proxy)) as client:
        started = time.perf_counter()
        for _ in range(3):
            _ask(client, "GET", "/bucket/x")
        # A lower bound, which no load of the machine can break.
        assert time.perf_counter() - started >= 0.06


def test_a_store_that_is_not_there_is_named() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with FaultProxy(f"http://127.0.0.1:{unused.getsockname()[1]}") as proxy, closing(_client(proxy)) as client:
            status, body = _ask(client, "GET", "/bucket/x")
    assert (status, body[:32]) == (502, b"the proxy's store is not there: ")


def test_only_plain_http_is_spoken() -> None:
    with pytest.raises(ValueError, match="plain HTTP"):
        FaultProxy("https://bucket.s3.amazonaws.com")
