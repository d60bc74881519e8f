"""Hostile variants of valid logs, as Hypothesis strategies."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.hostile.hostile_json import HOSTILE_TEXTS, with_hostile_value
from tests.hostile.opening import Log


def hostile_logs(log: Log) -> st.SearchStrategy[Log]:
    """The log with one to three things wrong in its files."""
    return st.integers(1, 3).flatmap(lambda count: _mutated(st.just(log), count))


def _mutated(logs: st.SearchStrategy[Log], count: int) -> st.SearchStrategy[Log]:
    for _ in range(count):
        logs = logs.flatmap(_one_wrong)
    return logs


def _one_wrong(log: Log) -> st.SearchStrategy[Log]:
    names = st.sampled_from(sorted(log))
    return names.flatmap(lambda name: _damaged(name, log[name]).map(lambda data: {**log, name: data}))


def _damaged(name: str, data: bytes) -> st.SearchStrategy[bytes]:
    ways: list[st.SearchStrategy[bytes]] = [_bytes_wrong(data)]
    if not name.endswith(".parquet"):
        lines = data.splitlines(keepends=True)
        ways += [_lines_wrong(lines), *([_values_wrong(lines)] * 3 if lines else [])]
    return st.one_of(ways)


def _bytes_wrong(data: bytes) -> st.SearchStrategy[bytes]:
    spans = st.tuples(st.integers(0, len(data)), st.integers(0, 64)).map(lambda span: (span[0], min(len(data), span[0] + span[1])))

    def apply(span: tuple[int, int], how: str, new: bytes) -> bytes:
        start, end = span
        before, middle, after = data[:start], data[start:end], data[end:]
        return {
            "replace": before + new + after,
            "flip": before + bytes(byte ^ (new[0] if new else 1) for byte in middle) + after,
            "cut": before,
            "drop": before + after,
            "twice": before + middle + middle + after,
            "insert": before + new + middle + after,
        }[how]

    hows = st.sampled_from(("replace", "flip", "cut", "drop", "twice", "insert"))
    news = st.one_of(
        st.binary(max_size=8), st.sampled_from((b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\r\n", b"\r", b"\xed\xa0\x80", b"PAR1"))
    )
    return st.builds(apply, spans, hows, news)


def _lines_wrong(lines: list[bytes]) -> st.SearchStrategy[bytes]:
    def apply(how: str, one: int, other: int) -> bytes:
        changed = list(lines)
        if changed:
            one, other = one % len(lines), other % len(lines)
            if how == "swap":
                changed[one], changed[other] = changed[other], changed[one]
            elif how == "twice":
                changed.insert(other, changed[one])
            elif how == "drop":
                del changed[one]
            elif how == "join":
                changed[one] = changed[one].rstrip(b"\n")
        text = b"".join(changed)
        return {
            "bom": b"\xef\xbb\xbf" + text,
            "crlf": text.replace(b"\n", b"\r\n"),
            "utf-16": text.decode(errors="replace").encode("utf-16"),
        }.get(how, text)

    return st.builds(
        apply, st.sampled_from(("swap", "twice", "drop", "join", "bom", "crlf", "utf-16")), st.integers(0, 99), st.integers(0, 99)
    )


def _values_wrong(lines: list[bytes]) -> st.SearchStrategy[bytes]:
    def apply(line: int, place: int, text: str, twice: bool) -> bytes:
        line %= len(lines)
        damaged = with_hostile_value(lines[line], place, text, twice=twice)
        return b"".join([*lines[:line], damaged, *lines[line + 1 :]])

    return st.builds(apply, st.integers(0, 99), st.integers(0, 999), st.sampled_from(HOSTILE_TEXTS), st.booleans())
