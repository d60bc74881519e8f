"""HTTP/1.1 messages as the proxy passes them on: whole, with their bytes as they came."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Answer", "Message", "MessageError", "Request", "read_answer", "read_request"]

# A head that is longer than the reader's buffer is refused; a signed request with its query stays far below.
_HEAD_END = b"\r\n\r\n"


class MessageError(Exception):
    """What came is not HTTP/1.1 as the proxy understands it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message.

    Attributes:
        start: the first line's three words.
        headers: by name in lower case; of a repeated one the last.
        head: the first line and the headers with the empty line, as they came.
        body: as it came, with the frames of the chunks where it is chunked.
        content: the body without those frames.
    """

    start: tuple[str, str, str]
    headers: Mapping[str, str]
    head: bytes
    body: bytes
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Message):
    """What a client sent."""

    @property
    def method(self) -> str:
        return self.start[0]

    @property
    def target(self) -> str:
        """Path and query as they were sent."""
        return self.start[1]

    @property
    def last(self) -> bool:
        """Whether the client closes the connection after it."""
        return self.headers.get("connection", "").lower() == "close" or self.start[2] == "HTTP/1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Message):
    """What a store answered.

    Attributes:
        last: the connection ends with it.
    """

    last: bool

    @property
    def status(self) -> int:
        return int(self.start[1])

    @classmethod
    def of(cls, status: int, reason: str, content: bytes, headers: Mapping[str, str] | None = None) -> Answer:
        """An answer of the proxy's own."""
        return _answer(("HTTP/1.1", str(status), reason), dict(headers or {}), content, last=False)

    def with_content(self, content: bytes) -> Answer:
        """The same answer with another body, in one piece."""
        framing = ("content-length", "transfer-encoding")
        kept = {name: value for name, value in self.headers.items() if name not in framing}
        return _answer(self.start, kept, content, last=self.last)


async def read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request | None:
    """The next request with its whole body, asked for where the client waits to be asked; None at the connection's end.

    Raises:
        EOFError: the connection ended within the request.
        MessageError: that is no HTTP.
    """
    try:
        head = await _head(reader)
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    start, headers = _parse(head)
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await writer.drain()
    if "chunked" in headers.get("transfer-encoding", "").lower():
        body, content = await _chunks(reader)
    else:
        body = content = await reader.readexactly(_length(headers) or 0)
    return Request(start=start, headers=headers, head=head, body=body, content=content)


async def read_answer(reader: asyncio.StreamReader, method: str) -> Answer:
    """The answer to a request of a method, after those that only say to go on.

    Raises:
        EOFError: the connection ended before the answer did.
        MessageError: that is no HTTP.
    """
    while True:
        head = await _head(reader)
        start, headers = _parse(head)
        if not start[1].isdecimal():
            raise MessageError(f"no status in {head[:100]!r}")
        if not 100 <= int(start[1]) < 200:
            break
    last = headers.get("connection", "").lower() == "close" or start[0] == "HTTP/1.0"
    length = _length(headers)
    if method == "HEAD" or int(start[1]) in (204, 304):
        body = content = b""
    elif "chunked" in headers.get("transfer-encoding", "").lower():
        body, content = await _chunks(reader)
    elif length is not None:
        body = content = await reader.readexactly(length)
    else:
        body = content = await reader.read()
        last = True
    return Answer(start=start, headers=headers, head=head, body=body, content=content, last=last)


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(_HEAD_END)
    except asyncio.LimitOverrunError as error:
        raise MessageError(f"a head without an end: {error}") from error


def _parse(head: bytes) -> tuple[tuple[str, str, str], dict[str, str]]:
    # Every byte is a character of this encoding, so that nothing is refused that the other side would take.
    first, *lines = head[: -len(_HEAD_END)].decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2:
        raise MessageError(f"no first line of HTTP: {first[:100]!r}")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return (words[0], words[1], words[2] if len(words) > 2 else ""), headers


def _length(headers: Mapping[str, str]) -> int | None:
    given = headers.get("content-length")
    if given is None:
        return None
    if not given.isdecimal():
        raise MessageError(f"a length that is no number: {given!r}")
    return int(given)


async def _chunks(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """A chunked body as it came, trailers included, and what it holds."""
    raw, content = bytearray(), bytearray()
    while True:
        line = await reader.readuntil(b"\r\n")
        raw += line
        try:
            size = int(line.partition(b";")[0], 16)
        except ValueError as error:
            raise MessageError(f"a chunk without a size: {line[:100]!r}") from error
        if size == 0:
            break
        chunk = await reader.readexactly(size + 2)
        raw += chunk
        content += chunk[:-2]
    while line != b"\r\n":
        line = await reader.readuntil(b"\r\n")
        raw += line
    return bytes(raw), bytes(content)


def _answer(start: tuple[str, str, str], headers: dict[str, str], content: bytes, *, last: bool) -> Answer:
    headers = {**headers, "Content-Length": str(len(content))}
    lines = [" ".join(start), *(f"{name}: {value}" for name, value in headers.items())]
    head = "\r\n".join(lines).encode("latin-1") + _HEAD_END
    return Answer(start=start, headers=headers, head=head, body=content, content=content, last=last)
