"""What goes over the wire between a client and a store, written down request by request."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, unquote

from integration.http_messages import Request
from integration.proxy import FaultProxy, Plan, Rule, kind_of

__all__ = ["Wire", "wiretap"]


class Wire(Plan):
    """A proxy's plan that notes each request as ``PUT t/_delta_log/00000000000000000001.json``, without the bucket.

    A listing is noted as ``LIST t/_delta_log/ after t/_delta_log/0000``.

    Attributes:
        url: the proxy's address, in the store's place.
    """

    def __init__(self, *rules: Rule) -> None:
        super().__init__(*rules)
        self.url = ""
        self._requests: list[str] = []
        self._lock = threading.Lock()

    def strike(self, request: Request) -> Rule | None:
        with self._lock:
            self._requests.append(_spelt(request))
        return super().strike(request)

    def take(self) -> list[str]:
        """The requests since the last time, in the order in which they came."""
        with self._lock:
            taken, self._requests = self._requests, []
        return taken


@contextmanager
def wiretap(endpoint: str, *rules: Rule) -> Iterator[Wire]:
    """A proxy before the store that notes what goes through, and has the rules befall it."""
    wire = Wire(*rules)
    with FaultProxy(endpoint, wire) as proxy:
        wire.url = proxy.url
        yield wire


def _spelt(request: Request) -> str:
    path, _, query = request.target.partition("?")
    kind = kind_of(request.method, request.target)
    if kind == "LIST":
        asked = parse_qs(query)
        bound = asked.get("start-after", asked.get("continuation-token", [""]))[0]
        return f"LIST {asked.get('prefix', [''])[0]}{f' after {bound}' if bound else ''}"
    return f"{request.method} {unquote(path).strip('/').partition('/')[2]}{'?' if query and request.method == 'POST' else ''}".strip()
