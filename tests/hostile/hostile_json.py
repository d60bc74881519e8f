"""Values that no log should hold, put into lines of JSON. Needs nothing but Python, for the fuzzer too."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeAlias

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

DEEP = "[" * 10_000 + "]" * 10_000
# Values as JSON text, for JSON itself has no words for half of them.
HOSTILE_TEXTS = (
    *("null", "true", "0", "-1", "1.5", "1.0", "1e999", "-1e999", "1e-2000000000", "NaN", "Infinity", "-0"),
    *(str(number + step) for number in (2**31, 2**53, 2**63, 2**64) for step in (-1, 0)),
    *(f"-{2**63 + step}" for step in (0, 1)),
    "9" * 5000,
    *(
        '""',
        '"\\u0000"',
        '"\\ud800"',
        '"\\udfff\\ud800"',
        '"\ufeff"',
        '"\u202e"',
        '"%ff"',
        '"NaN"',
        '"1e-2000000000"',
        '"' + "9" * 100 + '"',
    ),
    *('"../x"', '"/etc/passwd"', '"s3://b/x"', '"%2e%2e/x"', '"_delta_log/00000000000000000000.json"', '"//h/x"', '"9999999-01-01"'),
    *("[]", "{}", "[[]]", '[{"a":1}]', '{"a":{"b":[null]}}', '{"type":"struct","fields":[]}', '"{"', '"[]"', '"null"'),
    *('"struct"', '"decimal(99,99)"', '"interval 1 month"', '"2147483648"', '"9223372036854775808"'),
    *("[" * 900 + "]" * 900, '{"a":' * 900 + "1" + "}" * 900, DEEP, '"' + "x" * 100_000 + '"'),
)
_SLOT = "@@slot@@"
_TWIN = "@@twin@@"


def with_hostile_value(line: bytes, place: int, text: str, *, twice: bool = False) -> bytes:
    """A line of JSON with another text for the value at some place, or with its key twice; as it was if it is no JSON."""
    try:
        value: Json = json.loads(line)
    except (ValueError, RecursionError):
        return line
    places = _places(value)
    if not places:
        return line
    put = places[place % len(places)]
    put(_TWIN if twice else _SLOT)
    told = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    # What stands inside of a text (the schema, statistics) is JSON of its own.
    for quotes in ('"', '\\"'):
        inner = text if quotes == '"' else json.dumps(text, ensure_ascii=False)[1:-1]
        told = told.replace(f"{quotes}{_SLOT}{quotes}", inner)
    if _TWIN in told:
        start = told.index(_TWIN)
        quote = told[:start][-1]
        key_end = told[: start - 1].rfind(":")
        key_start = max(told[:key_end].rfind(","), told[:key_end].rfind("{")) + 1
        key = told[key_start:key_end]
        told = told.replace(f"{quote}{_TWIN}{quote}", f"1,{key}:2" if key.endswith('"') else "1")
    return told.encode(errors="surrogatepass") + b"\n"


def _places(value: Json) -> list[Callable[[str], None]]:
    """One setter per value of the tree, those inside of JSON texts too."""
    found: list[Callable[[str], None]] = []
    stack: list[tuple[Json, Callable[[], None]]] = [(value, lambda: None)]
    while stack:
        node, changed = stack.pop()
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, item in list(items):

            def put(new: Json, *, node: Json = node, key: object = key, changed: Callable[[], None] = changed) -> None:
                node[key] = new  # type: ignore[index, call-overload]
                changed()

            found.append(put)
            if isinstance(item, dict | list):
                stack.append((item, changed))
            elif isinstance(item, str) and item[:1] == "{":
                try:
                    inner = json.loads(item)
                except (ValueError, RecursionError):
                    continue

                def written(*, put: Callable[[Json], None] = put, inner: Json = inner) -> None:
                    put(json.dumps(inner, separators=(",", ":"), ensure_ascii=False))

                stack.append((inner, written))
    return found
