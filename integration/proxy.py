"""A proxy for HTTP stores that fails on purpose, counts requests and adds latency. For tests and benchmarks, on loopback.

    with FaultProxy("http://127.0.0.1:9000", Plan(Rule(Fault.LOSE_ANSWER, kind="PUT commit", probability=0.05), seed=1)) as proxy:
        store = S3LogStore({"endpoint_url": proxy.url, ...})
        ...
        assert proxy.counts["PUT commit"] == 1

Requests pass whole and byte for byte, the Host header too: signatures made for the proxy's address stay valid with a store that verifies
Host as it was sent. A request's body is read to its end before a byte of it goes on, an answer's likewise, so that what a fault cuts off
is cut off there and nowhere else. One client connection has one connection to the store.

As a program, for what must not share a process with its clients; it says its address on standard output and ends with standard input:

    python -m integration.proxy http://127.0.0.1:9000 --latency-ms 60 --lose 0.05 --seed 1
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import socket
import struct
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from urllib.parse import unquote, urlsplit

from integration.http_messages import Answer, MessageError, Request, read_answer, read_request

__all__ = ["Fault", "FaultProxy", "Plan", "Rule", "kind_of"]


class Fault(StrEnum):
    """What may befall a request.

    Attributes:
        RESET_BEFORE: the connection is reset; the store never hears of the request.
        RESET_IN_BODY: the store gets the head and half of the body, then both connections are reset.
        LOSE_ANSWER: the store has answered; the connection is closed ``seconds`` later without a word.
        RESET_AFTER: the store has answered; the connection is reset.
        LATE: the connection is closed at once, and ``seconds`` later the store gets the request after all.
        TWICE: the store gets the request twice, one after the other; the second answer is passed on.
        SLOW_DOWN: 503 with Retry-After ``seconds`` and S3's XML; the store never hears of the request.
        SLOW_BODY: the answer's body comes in pieces over ``seconds``.
        TRUNCATE: half of the answer's body, then the connection is closed.
        LISTING_TWICE: every entry of a listing's page comes twice.
        LISTING_SHUFFLED: the entries of a listing's page come in another order.
    """

    RESET_BEFORE = "reset before"
    RESET_IN_BODY = "reset in the body"
    LOSE_ANSWER = "answer lost"
    RESET_AFTER = "reset after"
    LATE = "late"
    TWICE = "twice"
    SLOW_DOWN = "slow down"
    SLOW_BODY = "slow body"
    TRUNCATE = "truncated"
    LISTING_TWICE = "listing twice"
    LISTING_SHUFFLED = "listing shuffled"


@dataclass(frozen=True, slots=True)
class Rule:
    """Which requests a fault befalls. What is not said matches every request.

    Attributes:
        fault: what happens.
        method: the request's.
        kind: see `kind_of`.
        path: a regular expression that is found in the decoded path with its query.
        nth: of the requests that match so far, the first being 1, only this one.
        probability: that the fault befalls a request that matches.
        times: how often at most; None for always.
        seconds: see `Fault`.
    """

    fault: Fault
    method: str | None = None
    kind: str | None = None
    path: str | None = None
    nth: int | None = None
    probability: float = 1.0
    times: int | None = None
    seconds: float = 0.0

    def matches(self, request: Request) -> bool:
        return (
            self.method in (None, request.method)
            and self.kind in (None, kind_of(request.method, request.target))
            and (self.path is None or re.search(self.path, unquote(request.target)) is not None)
        )


class Plan:
    """Rules in their order: of those that match, the first that strikes befalls a request. One plan for one proxy.

    Args:
        rules: none for a proxy that only passes on.
        seed: of every chance. Requests that come at once draw in the order in which they come.
    """

    def __init__(self, *rules: Rule, seed: int = 0) -> None:
        self.rules = rules
        self.random = random.Random(seed)
        self._matched = [0] * len(rules)
        self._struck = [0] * len(rules)

    def strike(self, request: Request) -> Rule | None:
        """The rule that befalls the request, None for none."""
        found = None
        for number, rule in enumerate(self.rules):
            if not rule.matches(request):
                continue
            # Counted in every rule, so that "the third" does not depend on what another rule did.
            self._matched[number] += 1
            due = rule.nth is None or rule.nth == self._matched[number]
            left = rule.times is None or self._struck[number] < rule.times
            if found is None and due and left and (rule.probability >= 1 or self.random.random() < rule.probability):
                self._struck[number] += 1
                found = rule
        return found


def kind_of(method: str, target: str) -> str:
    """What a request is counted as: ``PUT commit``, ``PUT other``, ``GET``, ``HEAD``, ``LIST``, ``DELETE``, ``POST``, or its method.

    Args:
        target: path and query as they were sent.
    """
    path, _, query = target.partition("?")
    if method == "GET" and re.search(r"(^|&)(list-type=|comp=list|prefix=|delimiter=)", query):
        return "LIST"
    if method == "PUT":
        return "PUT commit" if re.search(r"/_delta_log/\d{20}\.json$", unquote(path)) else "PUT other"
    return method


class FaultProxy:
    """A proxy in a thread of its own, from ``__enter__`` to ``__exit__``.

    Args:
        target: the store's address, ``http://host:port``.
        plan: may be set anew at any time.
        latency_s: what every request takes longer: half of it before the store gets it, half before the client gets the answer.

    Attributes:
        url: the proxy's address.
        counts: requests as clients sent them, by `kind_of`.
        struck: faults by their value.
    """

    def __init__(self, target: str, plan: Plan | None = None, *, latency_s: float = 0.0) -> None:
        address = urlsplit(target)
        if address.scheme != "http" or address.hostname is None:
            raise ValueError(f"the proxy speaks plain HTTP to http://host:port, not to {target}")
        self._target = (address.hostname, address.port or 80)
        self.plan = Plan() if plan is None else plan
        self.latency_s = latency_s
        self.counts: Counter[str] = Counter()
        self.struck: Counter[str] = Counter()
        self.url = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fault-proxy", daemon=True)
        self._failure: BaseException | None = None

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def forget(self) -> None:
        """Count from zero."""
        self.counts.clear()
        self.struck.clear()

    # the thread -------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, backlog=1024)
        port = server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        connection = _Connection(self, reader, writer)
        try:
            await connection.serve()
        except (OSError, EOFError, MessageError, asyncio.CancelledError):
            # The client or the store went away, or the proxy stops.
            pass
        finally:
            connection.close()
            self._tasks.discard(task)

    def deliver_late(self, request: Request, seconds: float) -> None:
        """Hand a request to the store on a connection of its own that nobody listens to."""

        async def deliver() -> None:
            await asyncio.sleep(seconds)
            store = _Store(self._target)
            try:
                await store.ask(request)
            except (OSError, EOFError, MessageError):
                pass
            finally:
                store.close()

        task = asyncio.get_running_loop().create_task(deliver())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def store(self) -> _Store:
        """A connection to the store, opened with the first request."""
        return _Store(self._target)


class _Store:
    """One connection to the store, opened when it is needed and opened anew when the store has closed it."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: Request) -> Answer:
        """Pass a request on; its whole answer.

        Raises:
            OSError, EOFError: the store is not there, or went away.
        """
        reader, writer = await self._open()
        writer.write(request.head + request.body)
        await writer.drain()
        answer = await read_answer(reader, request.method)
        if answer.last:
            self.close()
        return answer

    async def ask_half(self, request: Request) -> None:
        """Pass on the head and half of the body, and reset the connection."""
        _, writer = await self._open()
        writer.write(request.head + request.body[: len(request.body) // 2])
        await writer.drain()
        self._streams = None
        _reset(writer)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is not None and (self._streams[0].at_eof() or self._streams[1].is_closing()):
            self.close()
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._target)
        return self._streams


class _Connection:
    """One client's connection: requests one after the other until one side closes it."""

    def __init__(self, proxy: FaultProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._reader, self._writer = reader, writer
        self._store = proxy.store()

    def close(self) -> None:
        self._store.close()
        self._writer.close()

    async def serve(self) -> None:
        going_on = True
        while going_on:
            request = await read_request(self._reader, self._writer)
            if request is None:
                return
            proxy = self._proxy
            proxy.counts[kind_of(request.method, request.target)] += 1
            rule = proxy.plan.strike(request)
            if rule is not None:
                proxy.struck[rule.fault.value] += 1
            await asyncio.sleep(proxy.latency_s / 2)
            going_on = await self._befall(request, rule) and not request.last

    async def _befall(self, request: Request, rule: Rule | None) -> bool:
        """Whether the connection goes on."""
        match None if rule is None else rule.fault:
            case Fault.RESET_BEFORE:
                _reset(self._writer)
                return False
            case Fault.RESET_IN_BODY:
                await self._store.ask_half(request)
                _reset(self._writer)
                return False
            case Fault.LATE:
                assert rule is not None
                self._proxy.deliver_late(request, rule.seconds)
                return False
            case Fault.SLOW_DOWN:
                assert rule is not None
                return await self._send(request, _slow_down(rule.seconds, with_body=request.method != "HEAD"))
            case Fault.TWICE:
                await self._store.ask(request)
        try:
            answer = await self._store.ask(request)
        except ConnectionRefusedError as error:
            return await self._send(request, Answer.of(502, "Bad Gateway", f"the proxy's store is not there: {error}".encode()))
        return await self._answer(request, answer, rule)

    async def _answer(self, request: Request, answer: Answer, rule: Rule | None) -> bool:
        match None if rule is None else rule.fault:
            case Fault.LOSE_ANSWER:
                assert rule is not None
                await asyncio.sleep(rule.seconds)
                return False
            case Fault.RESET_AFTER:
                _reset(self._writer)
                return False
            case Fault.TRUNCATE:
                self._writer.write(answer.head + answer.body[: len(answer.body) // 2])
                await self._writer.drain()
                return False
            case Fault.LISTING_TWICE:
                answer = _with_entries(answer, lambda entries: [entry for entry in entries for _ in range(2)])
            case Fault.LISTING_SHUFFLED:
                answer = _with_entries(answer, lambda entries: self._proxy.plan.random.sample(entries, len(entries)))
            case Fault.SLOW_BODY:
                assert rule is not None
                return await self._send(request, answer, rule.seconds)
        return await self._send(request, answer)

    async def _send(self, request: Request, answer: Answer, seconds: float = 0.0, pieces: int = 10) -> bool:
        await asyncio.sleep(self._proxy.latency_s / 2)
        if not seconds:
            self._writer.write(answer.head + answer.body)
        else:
            self._writer.write(answer.head)
            size = len(answer.body) // pieces + 1
            for start in range(0, len(answer.body), size):
                await asyncio.sleep(seconds / pieces)
                self._writer.write(answer.body[start : start + size])
                await self._writer.drain()
        await self._writer.drain()
        return not answer.last


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close so that the other side sees a reset and no end."""
    with suppress(OSError):
        # asyncio hands out a wrapper of the socket that has setsockopt.
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _slow_down(retry_after_s: float, *, with_body: bool) -> Answer:
    xml = b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>'
    extra = {"Content-Type": "application/xml", "Retry-After": str(round(retry_after_s))}
    return Answer.of(503, "Slow Down", xml if with_body else b"", extra)


_ENTRY = re.compile(rb"<(Contents|Blob)>.*?</\1>", re.DOTALL)


def _with_entries(answer: Answer, change: Callable[[list[bytes]], list[bytes]]) -> Answer:
    """A listing's page with other entries; anything else as it is."""
    body = answer.content
    found = list(_ENTRY.finditer(body))
    if answer.status != 200 or not found:
        return answer
    entries = change([match.group() for match in found])
    return answer.with_content(body[: found[0].start()] + b"".join(entries) + body[found[-1].end() :])


def main() -> None:
    parser = argparse.ArgumentParser(description="A proxy with latency and lost answers; it ends with standard input.")
    parser.add_argument("target", help="http://host:port of the store")
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--lose", type=float, default=0.0, help="probability that an answer is lost after its effect")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    plan = Plan(Rule(Fault.LOSE_ANSWER, probability=given.lose), seed=given.seed)
    with FaultProxy(given.target, plan, latency_s=given.latency_ms / 1000) as proxy:
        print(proxy.url, flush=True)
        sys.stdin.read()
        print(dict(proxy.counts), dict(proxy.struck), file=sys.stderr)


if __name__ == "__main__":
    main()
