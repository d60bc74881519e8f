"""Who asks S3 and where: a wrong setting is one clear error after few requests, and right ones arrive by every road."""

from __future__ import annotations

import http.server
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from botocore.httpsession import URLLib3Session

from integration.servers import MinIO
from integration.wire import wiretap
from lakelog.core.errors import StorageError, StoreConfigurationError
from lakelog.storage import registry
from lakelog.storage.registry import log_store_for
from lakelog.storage.s3 import S3LogStore
from lakelog.storage.table_log import TableLog
from tests.storage.logs import append, creation, grow

# What is not there, or answers nonsense, is asked three times; so is the removal of a probe of which nobody knows if it arrived. A page
# that was taken for an answer makes it six.
_MOST_REQUESTS = 7


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A machine that knows no credentials, and a process for which nothing is configured."""
    for name in (
        *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"),
        *("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL_STS", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"),
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    yield
    registry.configure({"s3": {}, "s3a": {}})


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The URLs that are asked, each as often as it is."""
    asked: list[str] = []
    send = URLLib3Session.send

    def noted(session: URLLib3Session, request: object) -> object:
        asked.append(str(getattr(request, "url", request)))
        return send(session, request)

    monkeypatch.setattr(URLLib3Session, "send", noted)
    return asked


@pytest.fixture
def table(minio: MinIO, bucket: str) -> str:
    """The root of a table at version 3."""
    log = TableLog(f"s3a://{bucket}/t", S3LogStore(minio.options()))
    log.commit(creation())
    grow(log, 3)
    return log.root


def _read(log: TableLog) -> object:
    return log.refresh()


def _create(log: TableLog) -> object:
    return log.commit(creation())


def _put(log: TableLog) -> object:
    """What a writer does who need not read first."""
    return S3LogStore.put_if_absent(log._reader._store, f"{log.root}/_delta_log/{0:020d}.json", b"{}")


VERBS = pytest.mark.parametrize("ask", [_read, _create, _put], ids=["read", "create", "put"])


# what is wrong ------------------------------------------------------------------------------------------------------------------


@VERBS
@pytest.mark.parametrize(
    ("wrong", "which"),
    [
        ({"key": "nobody"}, "the access key is wrong"),
        ({"secret": "not-the-secret"}, "the secret key is wrong"),
        ({"token": "not-a-token"}, "the session token of .* is wrong"),
        ({"region": "eu-west-1"}, "the region is wrong: .* asked in eu-west-1 .* it is us-east-1"),
    ],
    ids=["key", "secret", "token", "region"],
)
def test_wrong_credentials_and_regions_are_named(
    minio: MinIO, table: str, requests: list[str], wrong: dict[str, object], which: str, ask: Callable[[TableLog], object]
) -> None:
    log = TableLog(table, S3LogStore({**minio.options(), **wrong}))
    requests.clear()
    with pytest.raises(StoreConfigurationError, match=which) as raised:
        ask(log)
    assert len(requests) <= _MOST_REQUESTS, requests
    _assert_telling(raised.value, table, minio, "not-the-secret", "not-a-token")


@VERBS
def test_a_wrong_bucket_is_named(minio: MinIO, requests: list[str], ask: Callable[[TableLog], object]) -> None:
    root = "s3a://lakelog-no-such-bucket/t"
    log = TableLog(root, S3LogStore(minio.options()))
    with pytest.raises(StoreConfigurationError, match="the bucket is wrong: there is no bucket lakelog-no-such-bucket") as raised:
        ask(log)
    assert len(requests) <= _MOST_REQUESTS, requests
    _assert_telling(raised.value, root, minio)


@contextmanager
def refused_port() -> Iterator[str]:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{closed.getsockname()[1]}"


@contextmanager
def deaf_host() -> Iterator[str]:
    """Packets to it vanish, as behind a firewall: the queue of its listener is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def silent_host() -> Iterator[str]:
    """It takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def web_server() -> Iterator[str]:
    """It speaks HTTP, and nothing else of S3."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            page = b"<!DOCTYPE html><html><body>It works!<br></body></html>"
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@VERBS
@pytest.mark.parametrize("host", [refused_port, deaf_host, silent_host, web_server])
def test_a_wrong_endpoint_is_named(
    minio: MinIO, table: str, requests: list[str], host: Callable[[], object], ask: Callable[[TableLog], object]
) -> None:
    with host() as endpoint:
        log = TableLog(table, S3LogStore({**minio.options(), "endpoint_url": endpoint, "connect_timeout": 0.2, "read_timeout": 0.2}))
        with pytest.raises((StorageError, OSError), match="endpoint") as raised:
            ask(log)
    assert endpoint in str(raised.value)
    assert len(requests) <= _MOST_REQUESTS, requests
    _assert_telling(raised.value, table, minio)


def test_no_credentials_are_named_and_nothing_is_asked(minio: MinIO, table: str, requests: list[str]) -> None:
    log = TableLog(table, S3LogStore({"endpoint_url": minio.endpoint}))
    with pytest.raises(StoreConfigurationError, match="there are no credentials"):
        log.refresh()
    assert requests == []


def test_a_profile_that_is_not_there_is_named(minio: MinIO, table: str, requests: list[str]) -> None:
    log = TableLog(table, S3LogStore({"endpoint_url": minio.endpoint, "profile": "nobodys"}))
    with pytest.raises(StoreConfigurationError, match="no AWS profile nobodys"):
        log.refresh()
    assert requests == []


def test_a_role_that_cannot_be_assumed_is_named(minio: MinIO, table: str, requests: list[str]) -> None:
    options = {**minio.options(), "secret": "not-the-secret", "role_arn": "arn:aws:iam::123456789012:role/writer"}
    log = TableLog(table, S3LogStore(options))
    with pytest.raises(StoreConfigurationError, match="the role arn:aws:iam::123456789012:role/writer cannot be assumed"):
        log.refresh()
    assert len(requests) <= _MOST_REQUESTS, requests


def test_what_one_may_not_do_is_named(minio: MinIO, table: str, bucket: str, requests: list[str]) -> None:
    open_to_all(minio, bucket, "s3:GetObject", "s3:ListBucket")
    log = TableLog(table, S3LogStore({"endpoint_url": minio.endpoint, "anon": True}))
    assert log.refresh().version == 3
    requests.clear()
    with pytest.raises(PermissionError, match="PutObject is denied to an anonymous request"):
        log.commit(append(3, "more"))
    assert len(requests) <= _MOST_REQUESTS, requests


def _assert_telling(error: BaseException, root: str, minio: MinIO, *planted: str) -> None:
    """One sentence about the table, and no secret."""
    message = str(error)
    assert root in message
    assert "\n" not in message
    for secret in (minio.secret_key, *planted):
        assert secret not in message


# what is right, by every road ---------------------------------------------------------------------------------------------------


def serve(root: str, settings: Mapping[str, str] | None = None) -> None:
    """Commit and read by whatever store serves the table."""
    log = TableLog(root, log_store_for(root, settings or {}))
    version = log.refresh().version
    assert log.commit(append(version, "more")).version == version + 1
    assert TableLog(root, log_store_for(root, settings or {})).refresh().version == version + 1


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_fsspecs_names(minio: MinIO, table: str, scheme: str) -> None:
    registry.configure({"s3": minio.options()})
    serve(table.replace("s3a:", f"{scheme}:"))


def test_fsspecs_nested_names(minio: MinIO, table: str) -> None:
    client = {"endpoint_url": minio.endpoint, "region_name": minio.region}
    registry.configure({"s3a": {"key": minio.access_key, "secret": minio.secret_key, "client_kwargs": client}})
    serve(table)


def test_sparks_keys(minio: MinIO, table: str) -> None:
    serve(table, {f"spark.hadoop.{key}": value for key, value in minio.hadoop().items()})
    serve(table, minio.hadoop())


def test_sparks_keys_of_one_bucket(minio: MinIO, table: str, bucket: str) -> None:
    settings = {key.replace("fs.s3a.", f"spark.hadoop.fs.s3a.bucket.{bucket}."): value for key, value in minio.hadoop().items()}
    elsewhere = {
        "spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:1",
        "spark.hadoop.fs.s3a.access.key": "a",
        "spark.hadoop.fs.s3a.secret.key": "b",
    }
    serve(table, {**elsewhere, **settings})


def test_lakelogs_own_keys_in_sparks_conf(minio: MinIO, table: str) -> None:
    serve(table, {f"spark.lakelog.s3a.{name}": str(value) for name, value in minio.options().items()})


def test_environment_variables(minio: MinIO, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in minio.environment().items():
        monkeypatch.setenv(name, value)
    serve(table)


def test_a_profile(minio: MinIO, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "credentials").write_text(
        f"[lake]\naws_access_key_id = {minio.access_key}\naws_secret_access_key = {minio.secret_key}\n", encoding="utf-8"
    )
    (tmp_path / "config").write_text(f"[profile lake]\nregion = {minio.region}\n", encoding="utf-8")
    serve(table, {"spark.lakelog.s3.profile": "lake", "spark.lakelog.s3.endpoint_url": minio.endpoint})
    monkeypatch.setenv("AWS_PROFILE", "lake")
    serve(table, {"spark.lakelog.s3.endpoint_url": minio.endpoint})


def temporary(minio: MinIO) -> dict[str, str]:
    arguments = {"RoleArn": "arn:aws:iam::123456789012:role/writer", "RoleSessionName": "test", "DurationSeconds": 900}
    return dict(minio.client("sts").assume_role(**arguments)["Credentials"])


def test_a_session_token(minio: MinIO, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = temporary(minio)
    key, secret, token = given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"]
    place = {"spark.lakelog.s3a.endpoint_url": minio.endpoint}
    serve(table, {**place, "spark.lakelog.s3a.key": key, "spark.lakelog.s3a.secret": secret, "spark.lakelog.s3a.token": token})
    hadoop = {"access.key": key, "secret.key": secret, "session.token": token}
    provider = {"spark.hadoop.fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"}
    serve(table, {**place, **provider, **{f"spark.hadoop.fs.s3a.{name}": value for name, value in hadoop.items()}})
    for name, value in (("ACCESS_KEY_ID", key), ("SECRET_ACCESS_KEY", secret), ("SESSION_TOKEN", token)):
        monkeypatch.setenv(f"AWS_{name}", value)
    serve(table, place)


def test_a_role(minio: MinIO, table: str, requests: list[str]) -> None:
    with wiretap(minio.endpoint) as wire:
        options = {**minio.options(), "endpoint_url": wire.url, "role_arn": "arn:aws:iam::123456789012:role/writer"}
        serve(table, {f"spark.lakelog.s3a.{name}": str(value) for name, value in options.items()})
        asked = wire.take()
    assert asked[0] == "POST", "the role is assumed first"
    assert asked.count("POST") == 1, "and once, for all that follows"


def open_to_all(minio: MinIO, bucket: str, *actions: str) -> None:
    resources = [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]
    statement = {"Effect": "Allow", "Principal": {"AWS": ["*"]}, "Action": list(actions), "Resource": resources}
    minio.client().put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [statement]}))


def test_anonymous(minio: MinIO, table: str, bucket: str) -> None:
    place = {"spark.lakelog.s3a.endpoint_url": minio.endpoint, "spark.lakelog.s3a.anon": "true"}
    with pytest.raises(PermissionError, match="denied to an anonymous request"):
        TableLog(table, log_store_for(table, place)).refresh()
    open_to_all(minio, bucket, "s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:ListBucket")
    serve(table, place)
    provider = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
    serve(table, {"fs.s3a.endpoint": minio.endpoint, "fs.s3a.aws.credentials.provider": provider})
