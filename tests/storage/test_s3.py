"""What the S3 store adds to the contract: how many requests there are, what each answer means, what the probe refuses.

The contract itself is tested against a real server in ``integration/``.
"""

from __future__ import annotations

import pickle
import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest

from lakelog.core.errors import StorageError, StoreConfigurationError
from lakelog.storage import s3_probe
from lakelog.storage.log_store import AlreadyExists, Created, Unknown
from lakelog.storage.s3 import S3LogStore, _is_unordered
from tests.storage.fake_s3 import BUSY, LOST_ANSWER, LOST_REQUEST, SLOW_DOWN, TIME_MS, Asked, FakeS3, Fault, Waits, fake_s3

LOG = "s3a://b/t/_delta_log"
VERSION = f"{LOG}/00000000000000000000.json"
KEY = "t/_delta_log/00000000000000000000.json"
PROBE = "t/_delta_log/.probe-u1"
FIRST_WRITE = [f"PUT {PROBE}", f"PUT {PROBE}", f"DELETE {PROBE}", "LIST t/_delta_log/.tmp/"]


@pytest.fixture(scope="module")
def address() -> Iterator[FakeS3]:
    with fake_s3() as server:
        yield server


@pytest.fixture
def server(address: FakeS3) -> FakeS3:
    address.reset()
    s3_probe._known.clear()
    s3_probe._looked.clear()
    return address


@pytest.fixture
def waits() -> Waits:
    return Waits()


def store_of(server: FakeS3, waits: Waits, **options: object) -> S3LogStore:
    given = {"key": "planted-key", "secret": "planted-secret", "endpoint_url": server.url, "region": "us-east-1", **options}
    return S3LogStore(given, environment=waits.environment())


@pytest.fixture
def store(server: FakeS3, waits: Waits) -> S3LogStore:
    """A store of a process that has written to the table before."""
    store = store_of(server, waits)
    assert store.put_if_absent(f"{LOG}/before", b"") == Created()
    assert server.log[:-1] == FIRST_WRITE
    del server.objects["t/_delta_log/before"]
    return store


# One commit, one PUT ------------------------------------------------------------------------------------------------------


def test_a_commit_is_one_conditional_put(server: FakeS3, store: S3LogStore) -> None:
    assert store.put_if_absent(VERSION, b"data") == Created()
    (asked,) = server.asked
    assert (repr(asked), asked.headers["if-none-match"], asked.headers["content-length"]) == (f"PUT {KEY}", "*", "4")
    # It would cost a round trip before the body is sent.
    assert "expect" not in asked.headers
    assert server.objects == {KEY: b"data"}
    assert store.put_if_absent(VERSION, b"other") == AlreadyExists()
    assert server.log == [f"PUT {KEY}"] * 2
    assert server.objects == {KEY: b"data"}


@pytest.mark.parametrize(
    "fault",
    [
        LOST_REQUEST,
        LOST_ANSWER,
        SLOW_DOWN,
        Fault(status=500, code="InternalError", done=True),
        Fault(status=502, body=b"<html/>"),
        Fault(status=504),
        Fault(status=400, code="RequestTimeout"),
        Fault(status=429, code="TooManyRequests"),
    ],
    ids=repr,
)
def test_what_may_have_been_done_is_unknown_and_not_sent_again(server: FakeS3, store: S3LogStore, waits: Waits, fault: Fault) -> None:
    server.faults = [fault]
    outcome = store.put_if_absent(VERSION, b"data")
    assert isinstance(outcome, Unknown)
    assert VERSION in str(outcome.cause)
    assert isinstance(outcome.cause, OSError)
    assert (server.log, waits.slept) == ([f"PUT {KEY}"], [])
    assert (KEY in server.objects) == fault.done


def test_a_server_that_is_gone_is_unknown(server: FakeS3, store: S3LogStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_s3() as other:
        url = other.url
    gone = store_of(other, Waits())
    monkeypatch.setattr(gone, "_before_creation", lambda folder: None)
    outcome = gone.put_if_absent(VERSION, b"data")
    assert isinstance(outcome, Unknown)
    assert str(outcome.cause).startswith(f"{VERSION}: the endpoint cannot be reached: no connection to {url}")


def test_a_conflict_under_way_is_sent_again(server: FakeS3, store: S3LogStore, waits: Waits) -> None:
    server.faults = [BUSY, BUSY]
    assert store.put_if_absent(VERSION, b"data") == Created()
    assert (server.log, waits.slept) == ([f"PUT {KEY}"] * 3, [0.2, 0.4])
    server.faults = [BUSY]
    assert store.put_if_absent(VERSION, b"data") == AlreadyExists()


def test_conflicts_without_end_are_unknown(server: FakeS3, store: S3LogStore, waits: Waits) -> None:
    server.befalls = lambda _: BUSY
    assert isinstance(store.put_if_absent(VERSION, b"data"), Unknown)
    assert (len(server.log), len(waits.slept)) == (6, 5)


def test_a_server_that_forgot_the_header_is_refused_by_name(server: FakeS3, store: S3LogStore) -> None:
    server.faults = [Fault(status=501, code="NotImplemented")]
    with pytest.raises(StorageError, match=r"does not know how .*logstore\.class=dynamodb"):
        store.put_if_absent(VERSION, b"data")


PORTAL = {"Content-Type": "text/html; charset=utf-8"}


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=200, body=b"<html><body>please log in</body></html>", headers=PORTAL),
        Fault(status=200, body=b""),
        Fault(status=204, body=b""),
    ],
    ids=repr,
)
def test_an_answer_without_an_etag_is_not_of_s3(server: FakeS3, store: S3LogStore, waits: Waits, fault: Fault) -> None:
    """A portal that stands before the network says 200 to everything, and nothing was made."""
    server.faults = [fault]
    outcome = store.put_if_absent(VERSION, b"data")
    assert isinstance(outcome, Unknown)
    assert "not as S3 does" in str(outcome.cause)
    assert (server.log, server.objects) == ([f"PUT {KEY}"], {})
    server.objects[KEY] = b"data"
    server.faults = [fault]
    assert store.read(VERSION) == b"data"
    server.faults = [fault]
    assert store._head(VERSION) is not None
    server.faults = [fault]
    store.put(VERSION, b"other")
    assert server.objects == {KEY: b"other"}
    server.befalls = lambda _: fault
    for verb in ("read", "put"):
        with pytest.raises(StorageError, match=r"the endpoint is wrong: .* not as S3 does"):
            VERBS[verb](store)


@pytest.mark.parametrize("verb", ["delete", "delete many"])
def test_a_page_is_no_answer_to_a_deletion(server: FakeS3, store: S3LogStore, verb: str) -> None:
    server.objects |= {KEY: b"", "t/_delta_log/1": b""}
    server.befalls = lambda _: Fault(status=200, body=b"<html><body>please log in</body></html>", headers=PORTAL)
    with pytest.raises(StorageError, match="the endpoint is wrong"):
        VERBS[verb](store)


def test_a_server_may_call_its_answers_html(server: FakeS3, store: S3LogStore) -> None:
    server.objects |= {KEY: b"", "t/_delta_log/1": b""}
    numbered = {**PORTAL, "x-amz-request-id": "1"}
    server.faults = [Fault(status=200, body=b"<DeleteResult/>", headers=numbered), Fault(status=204, body=b"", headers=PORTAL)]
    store.delete([VERSION, f"{LOG}/1"])
    store.delete([VERSION])
    assert server.log == ["POST ?delete ", f"DELETE {KEY}"]


def test_the_probe_believes_no_portal(server: FakeS3, waits: Waits) -> None:
    server.befalls = lambda _: Fault(status=200, body=b"<html/>", headers=PORTAL)
    with pytest.raises(StoreConfigurationError, match="the endpoint is wrong"):
        store_of(server, waits).put_if_absent(VERSION, b"data")


@pytest.mark.parametrize(("after", "expected"), [("7", 7.0), ("soon", None)])
def test_a_server_that_wants_to_be_left_alone_is_passed_on(server: FakeS3, store: S3LogStore, after: str, expected: float | None) -> None:
    server.faults = [Fault(status=503, code="SlowDown", headers={"Retry-After": after})]
    outcome = store.put_if_absent(VERSION, b"data")
    assert isinstance(outcome, Unknown)
    assert outcome.retry_after_s == expected


# What is wrong ---------------------------------------------------------------------------------------------------------------

WRONG = [
    (Fault(status=403, code="InvalidAccessKeyId"), StoreConfigurationError, "the access key is wrong"),
    (Fault(status=403, code="SignatureDoesNotMatch"), StoreConfigurationError, "the secret key is wrong"),
    (Fault(status=400, code="ExpiredToken"), StoreConfigurationError, "the session token .* expired"),
    (Fault(status=404, code="NoSuchBucket"), StoreConfigurationError, "the bucket is wrong: there is no bucket b at http"),
    (Fault(status=404, body=b"<html/>"), StoreConfigurationError, "the endpoint is wrong: http.* not as S3 does"),
    (Fault(status=301, code="PermanentRedirect"), StoreConfigurationError, "the region is wrong: .* in us-east-1 for the bucket b"),
    (
        Fault(status=400, body=b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-3</Region></Error>"),
        StoreConfigurationError,
        "the region is wrong: .*; it is eu-west-3",
    ),
    (Fault(status=403, code="RequestTimeTooSkewed"), StoreConfigurationError, "the clock"),
    (Fault(status=403, code="AccessDenied"), PermissionError, "ListBucket"),
    (Fault(status=400, code="SomethingElse"), StorageError, "HTTP 400 SomethingElse, said so"),
]
VERBS: dict[str, Callable[[S3LogStore], object]] = {
    "list": lambda store: store.list_from(f"{LOG}/0"),
    "put": lambda store: store.put(VERSION, b"data"),
    "put_if_absent": lambda store: store.put_if_absent(VERSION, b"data"),
    "delete": lambda store: store.delete([VERSION]),
    "delete many": lambda store: store.delete([VERSION, f"{LOG}/1"]),
    "read": lambda store: store.read(VERSION),
}


CASES = [(verb, *case) for verb in VERBS for case in WRONG]


@pytest.mark.parametrize(("verb", "fault", "kind", "text"), CASES, ids=[f"{verb}: {text}" for verb, _, _, text in CASES])
def test_what_is_wrong_is_said_at_once(
    server: FakeS3, store: S3LogStore, waits: Waits, verb: str, fault: Fault, kind: type[Exception], text: str
) -> None:
    server.befalls = lambda _: fault
    with pytest.raises(kind, match=text) as caught:
        VERBS[verb](store)
    assert (len(server.log), waits.slept) == (1, [])
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert "planted" not in repr(caught.value)


@pytest.mark.parametrize("verb", sorted(VERBS.keys() - {"put_if_absent"}))
def test_a_server_that_is_not_there_is_one_error(server: FakeS3, waits: Waits, verb: str) -> None:
    with fake_s3() as gone:
        pass
    with pytest.raises(
        StorageError, match=r"the endpoint cannot be reached: no connection to http://127.0.0.1:\d+ \(EndpointConnectionError\)"
    ):
        VERBS[verb](store_of(gone, waits))
    assert len(waits.slept) == 2


def test_no_credentials_are_one_error_without_a_request(server: FakeS3, waits: Waits, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    store = S3LogStore({"endpoint_url": server.url, "region": "us-east-1"}, environment=waits.environment())
    with pytest.raises(StoreConfigurationError, match="there are no credentials"):
        store.read(VERSION)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "planted-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted-secret")
    with pytest.raises(FileNotFoundError):
        store.read(VERSION)
    assert server.log == [f"GET {KEY}"]


def test_a_page_of_html_is_no_listing(waits: Waits) -> None:
    with fake_s3() as server:
        server.befalls = lambda _: Fault(status=200, body=b"<html><body>welcome</body></html>")
        with pytest.raises(StoreConfigurationError, match="the endpoint is wrong"):
            store_of(server, waits).list_from(f"{LOG}/")
        assert (len(server.log), waits.slept) == (1, [])


# Reading ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [LOST_REQUEST, SLOW_DOWN, Fault(cut=1), Fault(cut=4), Fault(status=500)], ids=repr)
def test_a_read_is_repeated_until_it_is_whole(server: FakeS3, store: S3LogStore, waits: Waits, fault: Fault) -> None:
    server.objects[KEY] = b"data"
    server.faults = [fault, fault]
    assert store.read(VERSION) == b"data"
    assert (server.log, waits.slept) == ([f"GET {KEY}"] * 3, [0.2, 0.4])


def test_a_read_that_is_never_whole_is_an_error(server: FakeS3, store: S3LogStore, waits: Waits) -> None:
    server.objects[KEY] = b"data"
    server.befalls = lambda _: Fault(cut=1)
    with pytest.raises(ConnectionError, match="GetObject"):
        store.read(VERSION)
    assert (len(server.log), len(waits.slept)) == (6, 5)


def test_the_server_says_how_long_to_wait(server: FakeS3, store: S3LogStore, waits: Waits) -> None:
    server.objects[KEY] = b"data"
    server.faults = [Fault(status=503, code="SlowDown", headers={"Retry-After": after}) for after in ("2", "3600", "soon")]
    assert store.read(VERSION) == b"data"
    assert waits.slept == [2.0, 5.0, 0.8]


@pytest.mark.parametrize("cut", [Fault(cut=10), Fault(status=404, body=b"<Error><Code>NoSuchK")], ids=repr)
def test_half_of_an_answer_is_asked_for_again_also_by_a_new_process(waits: Waits, cut: Fault) -> None:
    with fake_s3() as server:
        server.faults = [cut]
        with pytest.raises(FileNotFoundError):
            store_of(server, waits).read(VERSION)
        assert server.log == [f"GET {KEY}"] * 2


def test_a_page_that_cannot_be_read_is_another_servers_when_it_stays(waits: Waits) -> None:
    with fake_s3() as server:
        server.befalls = lambda _: Fault(status=404, body=b"<html><br>no such page</html>")
        with pytest.raises(StoreConfigurationError, match="the endpoint is wrong"):
            store_of(server, waits).read(VERSION)
        assert len(server.log) == 3


@pytest.mark.parametrize("verb", ["read", "list", "put_if_absent"])
def test_a_server_that_closes_at_once_is_one_error_that_names_the_setting(waits: Waits, verb: str) -> None:
    with fake_s3() as server:
        server.befalls = lambda _: LOST_REQUEST
        with pytest.raises(ConnectionError, match=r"ConnectionClosedError.*correct the endpoint \(endpoint_url"):
            VERBS[verb](store_of(server, waits))
        assert sum(waits.slept) < 8


# Listing ---------------------------------------------------------------------------------------------------------------------


def test_a_refresh_that_finds_nothing_new_is_one_list(server: FakeS3, store: S3LogStore) -> None:
    server.objects |= {f"t/_delta_log/{version:020d}.json": b"data" for version in range(11)}
    listed = list(store.list_from(f"{LOG}/{10:020d}"))
    assert [(file.path, file.size, file.modification_time_ms) for file in listed] == [(f"{LOG}/{10:020d}.json", 4, TIME_MS)]
    (asked,) = server.asked
    assert asked.query == {
        "list-type": "2",
        "prefix": "t/_delta_log/",
        "delimiter": "/",
        "max-keys": "1000",
        # Not "/", which ends a folder.
        "start-after": "t/_delta_log/0000000000000000001-",
        "encoding-type": "url",
    }


@pytest.mark.parametrize("bound", ["a!", "a ", "a\x01", "a0", ".", "..", ".!", "a.", "\ue000", "é", "a\U00010000", "~", "0", "1", "/"[:0]])
def test_a_bound_is_exact_whatever_its_last_character(server: FakeS3, store: S3LogStore, bound: str) -> None:
    names = sorted(
        {"!", ".x", "0", "a", "a ", "a!", "a!!", "a-", "a.", "a/b", "a0", "a\U00010000", "b", "é", "\ud7ff", "\ue000", "~", "\x7f", bound}
        - {""}
    )
    server.objects |= {f"t/_delta_log/{name}": b"" for name in names}
    assert [file.name for file in store.list_from(f"{LOG}/{bound}")] == [name for name in names if name >= bound and "/" not in name]
    start = server.asked[0].query.get("start-after", "")
    assert start < f"t/_delta_log/{bound}"
    assert not {part for part in start.split("/")[2:] if part in (".", "..")}
    assert len(server.log) == 1


def test_pages_are_asked_for_as_they_are_taken(server: FakeS3, store: S3LogStore) -> None:
    server.page = 10
    server.objects |= {f"t/_delta_log/{number:03d}": b"" for number in range(35)}
    files = store.list_from(f"{LOG}/")
    assert [next(files).name for _ in range(10)] == [f"{number:03d}" for number in range(10)]
    assert len(server.asked) == 1
    assert len(list(files)) == 25
    assert len(server.log) == 4


def test_probes_and_folders_are_not_listed(server: FakeS3, store: S3LogStore) -> None:
    server.objects |= {f"t/_delta_log/{name}": b"" for name in ("", ".probe-1", ".probe-2", "_sidecars/x", "a", "z/y")}
    assert [file.name for file in store.list_from(f"{LOG}/")] == ["a"]
    assert list(store.list_from(f"{LOG}/b")) == []


@pytest.mark.parametrize("left", [[], [".probe-1"], [".probe-1", ".probe-2"]])
@pytest.mark.parametrize("bound", ["", "0"])
def test_a_folder_without_files_is_not_there(server: FakeS3, store: S3LogStore, left: list[str], bound: str) -> None:
    server.objects |= {f"t/_delta_log/{name}": b"" for name in left}
    server.objects["t/_delta_log2"] = b""
    with pytest.raises(FileNotFoundError):
        store.list_from(f"{LOG}/{bound}")


def test_s3_express_is_listed_whole_and_sorted(server: FakeS3, waits: Waits, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _is_unordered("b--use1-az4--x-s3")
    store = store_of(server, waits)
    # By such a name the SDK asks for a session with the bucket, which is AWS' own matter.
    monkeypatch.setattr("lakelog.storage.s3._is_unordered", lambda name: name == "b")
    server.ordered, server.page = False, 2
    server.objects |= {f"t/_delta_log/{name}": b"" for name in ("c", "a", "e", "x/y", "b", "d")}
    assert [file.name for file in store.list_from(f"{LOG}/b")] == ["b", "c", "d", "e"]
    assert all("start-after" not in asked.query for asked in server.asked)


def test_a_page_in_disorder_is_sorted_and_nothing_is_shown_twice(server: FakeS3, store: S3LogStore) -> None:
    server.ordered = False
    server.objects |= {f"t/_delta_log/{name}": b"" for name in ("c", "a", "b")}
    assert [file.name for file in store.list_from(f"{LOG}/")] == ["a", "b", "c"]


def test_pages_in_disorder_are_an_error(server: FakeS3, store: S3LogStore) -> None:
    server.ordered, server.page = False, 2
    server.objects |= {f"t/_delta_log/{name}": b"" for name in ("c", "d", "a", "b")}
    with pytest.raises(StorageError, match="lists a after d"):
        list(store.list_from(f"{LOG}/"))


def test_a_listing_that_breaks_off_is_asked_for_again(server: FakeS3, store: S3LogStore) -> None:
    server.objects |= {f"t/_delta_log/{number:03d}": b"" for number in range(25)}
    server.page = 10
    server.faults = [Fault(cut=300), None, SLOW_DOWN, LOST_ANSWER]
    assert len(list(store.list_from(f"{LOG}/"))) == 25
    assert len(server.log) == 6


def _without(tag: str) -> Callable[[str, Asked], str]:
    return lambda listing, _: re.sub(f"<{tag}>.*?</{tag}>", "", listing)


def _first_page_again(listing: str, asked: Asked) -> str:
    """As of a server that ignores the token, and makes a new one for each page."""
    _first_page_again.count += 1  # type: ignore[attr-defined]
    token = f"token-{_first_page_again.count}"  # type: ignore[attr-defined]
    return re.sub(r"(Token>).*?(</Next)", rf"\g<1>{token}\g<2>", listing)


_first_page_again.count = 0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("amend", "ignored", "message"),
    [
        (_without("NextContinuationToken"), False, "says that there is more, and not how to go on"),
        (lambda listing, _: listing.replace("<IsTruncated>true", "<IsTruncated>false"), False, "how to go on, and that there is no more"),
        (_without("IsTruncated"), False, "how to go on, and that there is no more"),
        (lambda listing, _: listing, True, "same page"),
        (_first_page_again, True, "bring nothing new"),
    ],
    ids=["no token", "not truncated", "truncation unsaid", "same token", "new tokens"],
)
@pytest.mark.parametrize("ordered", [True, False])
def test_a_listing_that_would_be_short_or_endless_is_an_error(
    server: FakeS3,
    store: S3LogStore,
    monkeypatch: pytest.MonkeyPatch,
    amend: Callable[[str, Asked], str],
    ignored: bool,
    message: str,
    ordered: bool,
) -> None:
    server.objects |= {f"t/_delta_log/{number:03d}": b"" for number in range(25)}
    server.page, server.amend = 10, amend
    if not ordered:
        monkeypatch.setattr("lakelog.storage.s3._is_unordered", lambda name: name == "b")
    if ignored:
        listing = server._listing
        server._listing = lambda query: listing({**query, "continuation-token": ""})  # type: ignore[method-assign]
    try:
        with pytest.raises(StorageError, match=f"{LOG}/: the server.*{message}"):
            list(store.list_from(f"{LOG}/"))
        assert len(server.asked) <= 2
    finally:
        server.__dict__.pop("_listing", None)


def test_pages_of_nothing_come_to_an_end(server: FakeS3, store: S3LogStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few are usual: keys that were deleted take their place in a page, and so do those in folders."""
    server.objects |= {f"t/_delta_log/x/{number}": b"" for number in range(4)} | {"t/_delta_log/z": b""}
    server.amend = lambda listing, asked: (
        re.sub("<Contents>.*</Contents>", "", listing).replace(
            "<IsTruncated>false</IsTruncated>",
            f"<IsTruncated>true</IsTruncated><NextContinuationToken>t/_delta_log/x/{len(server.asked)}</NextContinuationToken>",
        )
        if len(server.asked) < 4
        else listing
    )
    assert [file.name for file in store.list_from(f"{LOG}/")] == ["z"]
    server.asked.clear()
    monkeypatch.setattr("lakelog.storage.s3._EMPTY_PAGES", 2)
    with pytest.raises(StorageError, match="nothing new"):
        list(store.list_from(f"{LOG}/"))
    assert len(server.log) == 3


# Deleting --------------------------------------------------------------------------------------------------------------------


def test_files_are_deleted_a_thousand_at_once(server: FakeS3, store: S3LogStore) -> None:
    paths = [f"{LOG}/{number:04d}" for number in range(2001)]
    server.objects |= {path.removeprefix("s3a://b/"): b"" for path in paths}
    store.delete(iter(paths))
    assert (server.log, server.objects) == (["POST ?delete ", "POST ?delete ", "DELETE t/_delta_log/2000"], {})


@pytest.mark.parametrize("fault", [Fault(status=501, code="NotImplemented"), Fault(status=400, code="MissingContentMD5")], ids=repr)
def test_a_server_without_batches_is_asked_one_by_one(server: FakeS3, store: S3LogStore, fault: Fault) -> None:
    server.objects |= {"t/_delta_log/a": b"", "t/_delta_log/b": b""}
    server.faults = [fault]
    store.delete([f"{LOG}/a", f"{LOG}/b"])
    assert (server.log, server.objects) == (["POST ?delete ", "DELETE t/_delta_log/a", "DELETE t/_delta_log/b"], {})
    store.delete([f"{LOG}/c", f"{LOG}/d"])
    assert server.log == ["DELETE t/_delta_log/c", "DELETE t/_delta_log/d"]


def test_a_file_that_is_not_deleted_is_an_error(server: FakeS3, store: S3LogStore) -> None:
    one = b"<DeleteResult><Error><Key>t/_delta_log/b</Key><Code>%b</Code></Error></DeleteResult>"
    server.faults = [Fault(status=200, body=one % b"InternalError")]
    store.delete([f"{LOG}/a", f"{LOG}/b"])
    assert server.log == ["POST ?delete ", "DELETE t/_delta_log/b"]
    server.faults = [Fault(status=200, body=one % b"AccessDenied"), Fault(status=403, code="AccessDenied")]
    with pytest.raises(PermissionError, match=f"{LOG}/b: DeleteObject is denied"):
        store.delete([f"{LOG}/a", f"{LOG}/b"])


def test_nothing_to_delete_is_no_request(server: FakeS3, store: S3LogStore) -> None:
    store.delete([])
    assert server.log == []


# Paths and pickles -------------------------------------------------------------------------------------------------------------


def test_the_schemes_of_s3_are_one(server: FakeS3, store: S3LogStore) -> None:
    names = [f"{scheme}://b/{KEY}" for scheme in ("s3a", "s3", "s3n")]
    assert [store.put_if_absent(name, b"data") for name in names] == [Created(), AlreadyExists(), AlreadyExists()]
    assert [[file.path for file in store.list_from(name)] for name in names] == [[name] for name in names]


@pytest.mark.parametrize("path", ["/local/path", "s3a://bucket", "s3a:///key", "gs://b/k", "b/k"])
def test_what_is_no_path_of_s3_is_refused(store: S3LogStore, path: str) -> None:
    with pytest.raises(StorageError, match="write it as s3a://bucket"):
        store.read(path)


def test_a_store_pickles_without_secrets_and_works_where_it_arrives(server: FakeS3, waits: Waits, monkeypatch: pytest.MonkeyPatch) -> None:
    server.objects[KEY] = b"data"
    options = {"token": "planted-token", "client_kwargs": {"aws_secret_access_key": "planted-secret"}, "config_kwargs": {"proxies": {}}}
    hadoop = {
        "fs.s3a.access.key": "planted-hadoop",
        "fs.s3a.bucket.b.secret.key": "planted-hadoop",
        "fs.s3a.some.password": "planted-other",
    }
    store = store_of(server, waits, **options, **hadoop)
    pickled = pickle.dumps(store)
    assert b"planted" not in pickled
    assert "planted" not in repr(store)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "arrived-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "arrived-secret")
    assert pickle.loads(pickled).read(VERSION) == b"data"
    assert "Credential=arrived-key/" in server.asked[-1].headers["authorization"]


@pytest.mark.parametrize("name", ["aws.credentials.provider", "assumed.role.credentials.provider"])
def test_a_store_whose_keys_stay_behind_does_not_insist_on_them(server: FakeS3, waits: Waits, name: str) -> None:
    keys = {"fs.s3a.access.key": "planted-key", "fs.s3a.secret.key": "planted-secret", "fs.s3a.endpoint": server.url}
    provider = {"fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.auth.AssumedRoleCredentialProvider"}
    role = {"fs.s3a.assumed.role.arn": "arn:aws:iam::1:role/other"} | provider
    simple = {f"fs.s3a.{name}": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"}
    store = S3LogStore({**keys, **role, **simple}, environment=waits.environment())
    pickled = pickle.dumps(store)
    assert b"planted" not in pickled
    assert pickle.loads(pickled)._options["fs.s3a.endpoint"] == server.url


def test_log_and_data_files_go_by_one_proxy(server: FakeS3, waits: Waits) -> None:
    server.objects[KEY] = b"data"
    store = store_of(server, waits, endpoint_url="http://s3.invalid:9000", config_kwargs={"proxies": {"http": server.url}})
    assert store.read(VERSION) == b"data"
    settings = store._requests("b").settings
    made: Any = {**settings.arrow_arguments(), **settings.arrow_secrets()}
    with pyarrow.fs.S3FileSystem(**made).open_input_stream(f"b/{KEY}") as stream:
        assert stream.read() == b"data"
    assert {asked.headers["host"] for asked in server.asked} == {"s3.invalid:9000"}


def test_settings_of_one_bucket_hold_for_it_alone(server: FakeS3, waits: Waits) -> None:
    with fake_s3() as other:
        other.objects[KEY] = b"other"
        server.objects[KEY] = b"this"
        keys = {"fs.s3a.access.key": "k", "fs.s3a.secret.key": "s", "fs.s3a.endpoint": server.url, "fs.s3a.bucket.c.endpoint": other.url}
        store = S3LogStore(keys, environment=waits.environment())
        assert (store.read(VERSION), store.read(VERSION.replace("//b/", "//c/"))) == (b"this", b"other")


ASSUMED = b"""<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
<AccessKeyId>planted-assumed</AccessKeyId><SecretAccessKey>planted-secret-2</SecretAccessKey><SessionToken>planted-token-2</SessionToken>
<Expiration>2999-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"""


def test_a_role_is_assumed_at_the_same_server(server: FakeS3, waits: Waits) -> None:
    server.objects[KEY] = b"data"
    server.faults = [Fault(status=200, body=ASSUMED)]
    store = store_of(server, waits, role_arn="arn:aws:iam::123456789012:role/writer", external_id="planted-id")
    assert store.read(VERSION) == b"data"
    assert store.read(VERSION) == b"data"
    assert [asked.method for asked in server.asked] == ["POST", "GET", "GET"]
    assert "Credential=planted-key/" in server.asked[0].headers["authorization"]
    assert "Credential=planted-assumed/" in server.asked[1].headers["authorization"]
    assert server.asked[1].headers["x-amz-security-token"] == "planted-token-2"
    server.faults = [Fault(status=200, body=ASSUMED)]
    secrets = {"access_key": "planted-assumed", "secret_key": "planted-secret-2", "session_token": "planted-token-2"}
    assert store._requests("b").settings.arrow_secrets() == secrets
    assert "role_arn" not in store._requests("b").settings.arrow_arguments()


def test_a_role_that_is_refused_is_named(server: FakeS3, waits: Waits) -> None:
    answer = b"<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>"
    server.befalls = lambda _: Fault(status=403, body=answer)
    with pytest.raises(StoreConfigurationError, match="the role arn:aws:iam::1:role/other cannot be assumed: HTTP 403 AccessDenied"):
        store_of(server, waits, role_arn="arn:aws:iam::1:role/other").read(VERSION)
    assert len(server.log) == 1
    with pytest.raises(StoreConfigurationError, match="the role writer cannot be assumed"):
        store_of(server, waits, role_arn="writer").read(VERSION)
    assert server.log == []


@pytest.mark.parametrize("verb", ["read", "list", "put_if_absent"])
def test_of_credentials_that_cannot_be_fetched_their_server_is_named(server: FakeS3, waits: Waits, verb: str) -> None:
    with fake_s3() as gone:
        pass
    store = store_of(server, waits, role_arn="arn:aws:iam::1:role/other", sts_endpoint_url=gone.url)
    with pytest.raises(
        StoreConfigurationError, match=f"the role arn:aws:iam::1:role/other cannot be assumed: {gone.url}.*sts_endpoint_url"
    ) as caught:
        VERBS[verb](store)
    assert (server.log, waits.slept, caught.value.__context__) == ([], [], None)


def test_of_a_web_identity_that_cannot_be_exchanged_the_endpoint_is_not_blamed(
    server: FakeS3, waits: Waits, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with fake_s3() as gone:
        pass
    (tmp_path / "jwt").write_text("planted.jwt.text", encoding="utf-8")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (
        ("AWS_CONFIG_FILE", "/nonexistent"),
        ("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "jwt")),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/web"),
        ("AWS_ENDPOINT_URL_STS", gone.url),
    ):
        monkeypatch.setenv(name, value)
    # The SDK's own waits between its attempts.
    monkeypatch.setattr("time.sleep", lambda _: None)
    with pytest.raises(StoreConfigurationError, match=f"the credentials of .* cannot be had: {gone.url}") as caught:
        S3LogStore({"endpoint_url": server.url, "region": "us-east-1"}, environment=waits.environment()).read(VERSION)
    assert (server.log, "planted" in str(caught.value)) == ([], False)


@pytest.mark.parametrize("verb", ["read", "list", "delete", "put_if_absent"])
def test_a_server_that_never_answers_is_one_error(verb: str, waits: Waits) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        store = S3LogStore({"key": "k", "secret": "s", "endpoint_url": url, "read_timeout": 0.05}, environment=waits.environment())
        with pytest.raises(StorageError, match=f"the endpoint cannot be reached: {url} takes connections and answers nothing"):
            VERBS[verb](store)
    assert waits.slept == []


def test_a_server_that_once_answered_is_asked_again(server: FakeS3, waits: Waits) -> None:
    server.objects[KEY] = b"data"
    store, release = store_of(server, waits, read_timeout=0.3), threading.Event()
    assert store.read(VERSION) == b"data"

    def hang(_: Asked) -> None:
        release.wait(10)

    server.befalls = hang
    server.faults = []
    with pytest.raises(TimeoutError, match=r"did not answer GetObject in 0\.3 s"):
        store.read(VERSION)
    release.set()
    assert len(waits.slept) == 2


def test_of_a_broken_tls_the_endpoint_is_named(server: FakeS3, waits: Waits) -> None:
    store = store_of(server, waits, endpoint_url=server.url.replace("http:", "https:"))
    with pytest.raises(StoreConfigurationError, match=r"the endpoint is wrong: https.* not as S3 does"):
        store.read(VERSION)
    assert waits.slept == []


def test_a_head_says_what_a_listing_says(server: FakeS3, store: S3LogStore) -> None:
    server.objects[KEY] = b"data"
    found = store._head(VERSION)
    assert found is not None
    assert (found.path, found.size, found.modification_time_ms) == (VERSION, 4, TIME_MS // 1000 * 1000)
    assert store._head(f"{LOG}/absent") is None
    assert server.log == [f"HEAD {KEY}", "HEAD t/_delta_log/absent"]


def test_a_request_is_signed_for_the_region_and_addressed_as_asked(server: FakeS3, waits: Waits) -> None:
    seen: list[Asked] = server.asked
    with pytest.raises(FileNotFoundError):
        store_of(server, waits, region="eu-west-3", token="planted-token").read(VERSION)
    assert "/eu-west-3/s3/aws4_request" in seen[-1].headers["authorization"]
    assert seen[-1].headers["x-amz-security-token"] == "planted-token"
    with pytest.raises(FileNotFoundError):
        S3LogStore({"anon": True, "endpoint_url": server.url}, environment=waits.environment()).read(VERSION)
    assert "authorization" not in seen[-1].headers
