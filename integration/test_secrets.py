"""Planted keys, secrets, tokens, presigned queries and passwords: in no log, message, value, pickle, table, plan or event log."""

from __future__ import annotations

import base64
import io
import json
import logging
import os
import pickle
import re
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

from integration.servers import DynamoDBLocal, MinIO
from lakelog.core.errors import LakelogError, StoreConfigurationError
from lakelog.storage import configure, log_store_for
from lakelog.storage.dynamodb import DynamoDBLogStore
from lakelog.storage.dynamodb_settings import DynamoDBSettings
from lakelog.storage.file_access import file_access_for
from lakelog.storage.log_store import AlreadyExists, Created, LogStore
from lakelog.storage.s3 import S3LogStore
from lakelog.storage.s3_settings import S3Settings
from lakelog.storage.table_log import TableLog
from tests.storage.logs import append, creation

ROOT = Path(__file__).resolve().parents[1]
PASSWORD = "planted-Passw0rd-of-an-endpoint"
SIGNATURE = "9a0b1c2dplantedsignature3e4f5a6b"
PRESIGNED = f"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAPLANTEDPRESIGNED%2F20260101&X-Amz-Signature={SIGNATURE}"
ALWAYS = frozenset({PASSWORD, SIGNATURE, "AKIAPLANTEDPRESIGNED"})


@dataclass(frozen=True)
class Planted:
    """Credentials that work, and must be seen nowhere."""

    endpoint: str
    region: str
    bucket: str
    key: str
    secret: str
    token: str

    @property
    def texts(self) -> frozenset[str]:
        return ALWAYS | {self.key, self.secret, self.token}

    def options(self, **changes: object) -> dict[str, object]:
        identity = {"key": self.key, "secret": self.secret, "token": self.token}
        return {"endpoint_url": self.endpoint, "region": self.region, **identity, **changes}


@pytest.fixture
def planted(minio: MinIO, bucket: str) -> Planted:
    given = minio.client("sts").assume_role(RoleArn="arn:minio:iam:::role/planted", RoleSessionName="planted", DurationSeconds=3600)
    found = given["Credentials"]
    return Planted(minio.endpoint, minio.region, bucket, found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"])


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """Every record of every logger, DEBUG included, as a handler of the root prints it."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logging.Formatter("%(name)s %(levelname)s %(message)s"))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield written
    root.setLevel(level)
    root.removeHandler(handler)


def hits(planted: Planted, text: str | bytes) -> set[str]:
    """Which of the planted texts are in it, plainly or in one of the forms that a request gives them."""
    data = text if isinstance(text, bytes) else text.encode()
    found = set()
    for secret in planted.texts:
        forms = (secret, quote(secret, safe=""), base64.b64encode(secret.encode()).decode(), json.dumps(secret)[1:-1])
        if any(form.encode() in data for form in forms):
            found.add(f"{secret[:4]}... ({len(secret)} characters)")
    return found


def said(error: BaseException) -> str:
    """All that an error and those behind it say, as they are printed and pickled."""
    texts = ["".join(traceback.format_exception(error))]
    seen: list[BaseException | None] = [error]
    for one in seen:
        if one is None:
            continue
        texts += [str(one), repr(one), repr(one.args), repr(getattr(one, "__notes__", "")), repr(vars(one))]
        texts.append(repr(getattr(one, "response", "")))
        seen += [other for other in (one.__cause__, one.__context__) if other not in seen]
    texts.append(repr(pickle.dumps(error)))
    return "\n".join(texts)


# stores ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["s3", "dynamodb"])
def test_what_works_says_nothing(kind: str, planted: Planted, dynamodb: DynamoDBLocal, logged: io.StringIO) -> None:
    own = {"ddb.endpoint_url": dynamodb.endpoint, "ddb.table_name": dynamodb.new_table_name()} if kind == "dynamodb" else {}
    store: LogStore = (DynamoDBLogStore if own else S3LogStore)(planted.options(**own))
    root = f"s3a://{planted.bucket}/t"
    log = TableLog(root, store)
    log.commit(creation())
    for version in range(3):
        log.commit(append(version, f"file-{version}"))
    assert store.put_if_absent(f"{root}/_delta_log/{1:020d}.json", b"again") == AlreadyExists()
    infos = list(store.list_from(f"{root}/_delta_log/"))
    with pytest.raises(FileNotFoundError) as raised:
        store.read(f"{root}/absent")
    store.put(f"{root}/_delta_log/_hint", b"{}")
    store.delete([f"{root}/_delta_log/_hint"])
    text = logged.getvalue()
    assert "botocore" in text
    assert f"/{planted.bucket}" in text
    assert hits(planted, text) == set()
    assert hits(planted, said(raised.value)) == set()
    for value in (store, log, log.snapshot(), infos):
        assert hits(planted, f"{value!r} {value}") == set()
    for info in infos:
        assert hits(planted, store.read(info.path)) == set()
    if own:
        items = dynamodb.client().scan(TableName=own["ddb.table_name"])["Items"]
        assert hits(planted, json.dumps(items)) == set()


WRONG: dict[str, dict[str, object]] = {
    "key": {"key": "AKIAWRONGPLANTED", "token": None},
    "secret": {"secret": "wrong-planted-secret"},
    "token": {"token": "wrong.planted.token"},
    "endpoint": {"endpoint_url": "http://127.0.0.1:9"},
    "region": {"region": "nowhere-1"},
    "bucket": {},
}


@pytest.mark.parametrize("verb", ["read", "write"])
@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_refused_names_the_setting_and_no_value(wrong: str, verb: str, planted: Planted, logged: io.StringIO) -> None:
    store = S3LogStore(planted.options(**WRONG[wrong]))
    path = f"s3a://{'absent-bucket-of-nobody' if wrong == 'bucket' else planted.bucket}/t/_delta_log/{0:020d}.json"
    told = ""
    try:
        # A lost answer is a value, which holds an error too; and not every server minds for which region a request is signed.
        told = repr(store.put_if_absent(path, b"{}") if verb == "write" else store.read(path))
        assert wrong == "region" or told != repr(Created())
    except (LakelogError, OSError) as raised:
        told = said(raised)
    texts = planted.texts | {str(value) for name, value in WRONG[wrong].items() if name in ("key", "secret", "token") and value}
    for text in (told, logged.getvalue()):
        assert hits(planted, text) == set()
        assert [secret for secret in texts if secret in text] == []


@pytest.mark.parametrize("wrong", ["key", "endpoint"])
def test_what_dynamodb_refuses_names_no_value(wrong: str, planted: Planted, dynamodb: DynamoDBLocal, logged: io.StringIO) -> None:
    endpoint = "http://127.0.0.1:9" if wrong == "endpoint" else dynamodb.endpoint
    own = {"ddb.endpoint_url": endpoint, "ddb.key": "AKIA-NO-KEY-PLANTED!", "ddb.secret": "planted-secret-of-dynamodb"}
    store = DynamoDBLogStore(planted.options(**own))
    with pytest.raises((LakelogError, OSError)) as raised:
        store.list_from(f"s3a://{planted.bucket}/t/_delta_log/")
    for text in (said(raised.value), logged.getvalue(), repr(store)):
        assert hits(planted, text) == set()
        assert "PLANTED!" not in text
        assert "planted-secret-of-dynamodb" not in text


REFUSED: dict[str, Callable[[Planted], object]] = {
    "an endpoint with a password": lambda planted: S3LogStore(planted.options(endpoint_url=f"http://user:{PASSWORD}@127.0.0.1:9000")),
    "an endpoint with a query": lambda planted: S3LogStore(planted.options(endpoint_url=f"http://127.0.0.1:9000/?{PRESIGNED}")),
    "DynamoDB's endpoint": lambda planted: DynamoDBLogStore(planted.options(**{"ddb.endpoint_url": f"http://u:{PASSWORD}@h:1"})),
    "a presigned URL as a table": lambda planted: log_store_for(f"https://bucket.s3.amazonaws.com/t?{PRESIGNED}"),
    "a presigned URL as a data file": lambda planted: file_access_for(f"https://bucket.s3.amazonaws.com/t?{PRESIGNED}"),
    "a secret under an unknown name": lambda planted: S3LogStore({"my_secret": planted.secret}),
    "a secret as an option's name": lambda planted: S3LogStore({"regionn": planted.secret, "key": planted.key}),
    "half of an identity": lambda planted: S3LogStore({"key": planted.key, "token": planted.token}),
    "two keys": lambda planted: S3LogStore(planted.options(aws_access_key_id=planted.secret)),
    "two secrets": lambda planted: S3LogStore(planted.options(secret_key=planted.token)),
    "two secrets of Spark's conf": lambda planted: log_store_for(
        "s3a://b/t", {"spark.lakelog.s3.secret": planted.secret, "spark.lakelog.s3a.secret": planted.token}
    ),
    "two keys of Spark's conf": lambda planted: log_store_for(
        "s3a://b/t", {"spark.lakelog.s3.key": planted.secret, "spark.lakelog.s3a.key": planted.key}
    ),
    "keys in a dictionary": lambda planted: S3LogStore({"client_kwargs": f"{{{planted.secret}"}),
    "half an identity for DynamoDB": lambda planted: DynamoDBLogStore({"ddb.key": planted.key, "ddb.token": planted.token}),
    "a secret where a number belongs": lambda planted: S3LogStore(planted.options(connect_timeout=planted.secret)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_that_are_refused_are_not_shown(case: str, planted: Planted, logged: io.StringIO) -> None:
    with pytest.raises((LakelogError, OSError)) as raised:
        REFUSED[case](planted)
    assert hits(planted, said(raised.value)) == set()
    assert hits(planted, logged.getvalue()) == set()


def test_public_objects_show_and_pickle_no_secret(planted: Planted, dynamodb: DynamoDBLocal) -> None:
    options = planted.options(**{"ddb.endpoint_url": dynamodb.endpoint, "ddb.key": planted.secret, "ddb.secret": planted.token})
    settings = S3Settings.of(options)
    configure({"s3a": {**options, "logstore.class": "dynamodb"}})
    try:
        values: list[object] = [
            settings,
            settings.credentials,
            DynamoDBSettings.of(options, settings),
            S3LogStore(options),
            DynamoDBLogStore(options),
            log_store_for(f"s3a://{planted.bucket}/t"),
            file_access_for(f"s3a://{planted.bucket}/t"),
        ]
    finally:
        configure({"s3a": {}})
    for value in values:
        assert hits(planted, f"{value!r} {value} {value:}") == set(), type(value)
        assert hits(planted, pickle.dumps(value)) == set(), type(value)
        assert type(pickle.loads(pickle.dumps(value))) is type(value)
        assert hits(planted, repr(pickle.loads(pickle.dumps(value)))) == set()
    log = TableLog(f"s3a://{planted.bucket}/t", S3LogStore(options))
    # What does not pickle, since it holds locks, shows nothing in that way.
    with suppress(TypeError, AttributeError):
        assert hits(planted, pickle.dumps(log)) == set()
    # They have them all the same.
    assert settings.secrets() >= {planted.key, planted.secret, planted.token}


def test_credentials_of_the_environment_are_hidden_too(planted: Planted, logged: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", planted.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", planted.secret)
    monkeypatch.setenv("AWS_SESSION_TOKEN", planted.token)
    store = S3LogStore({"endpoint_url": planted.endpoint, "region": planted.region})
    assert store.put_if_absent(f"s3a://{planted.bucket}/t/_delta_log/{0:020d}.json", b"{}") == Created()
    assert "botocore" in logged.getvalue()
    assert hits(planted, logged.getvalue()) == set()


def test_credentials_of_a_profile_are_hidden_too(
    planted: Planted, logged: io.StringIO, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keys = {"aws_access_key_id": planted.key, "aws_secret_access_key": planted.secret, "aws_session_token": planted.token}
    (tmp_path / "credentials").write_text("[planted]\n" + "".join(f"{name} = {value}\n" for name, value in keys.items()))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    store = S3LogStore({"endpoint_url": planted.endpoint, "region": planted.region, "profile": "planted"})
    assert store.put_if_absent(f"s3a://{planted.bucket}/t/_delta_log/{0:020d}.json", b"{}") == Created()
    assert hits(planted, logged.getvalue()) == set()


# Spark -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("engine", "given"), [("arrow", "configure"), ("arrow", "hadoop"), ("native", "configure")])
def test_nothing_of_spark_shows_them(engine: str, given: str, planted: Planted, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    jars = request.getfixturevalue("hadoop_aws") if engine == "native" else []
    events = tmp_path / "events"
    events.mkdir()
    told = {
        "engine": engine,
        "given": given,
        "jars": ",".join(map(str, jars)),
        "events": str(events),
        "warehouse": str(tmp_path / "warehouse"),
        "root": f"s3a://{planted.bucket}/t",
        "options": planted.options(),
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYSPARK_", "SPARK_"))}
    path = os.pathsep.join(str(ROOT / part) for part in ("core", "storage", "spark", "."))
    done = subprocess.run(
        [sys.executable, "-m", "integration.secrets_program"],
        input=json.dumps(told),
        env={**inherited, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "TMPDIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    printed = done.stdout + done.stderr
    assert done.returncode == 0, re.sub("|".join(map(re.escape, planted.texts)), "***", printed[-6000:])
    found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    assert found["engine"] == engine
    assert found["rows"] == [[1, "changed"], [3, "c"]]
    assert {"explain scan", "explain write", "detail", "history", "commits", "error"} <= found["texts"].keys()
    for name, text in found["texts"].items():
        assert text, name
        assert hits(planted, text) == set(), name
    logs = [file for file in events.rglob("*") if file.is_file()]
    assert any(b"SparkListenerSQLExecutionStart" in file.read_bytes() for file in logs)
    for file in logs:
        assert hits(planted, file.read_bytes()) == set(), [
            re.sub("|".join(map(re.escape, planted.texts)), "***", line[:300])
            for line in file.read_text().splitlines()
            if hits(planted, line)
        ]
    assert "botocore" in printed, "the loggers of Python are not on DEBUG"
    assert hits(planted, printed) == set()


def test_a_program_that_plants_is_found_out(planted: Planted) -> None:
    for secret in planted.texts:
        assert hits(planted, f"a {secret} b")
        assert hits(planted, quote(secret, safe=""))
        assert hits(planted, pickle.dumps({"a": secret}))
    with pytest.raises(StoreConfigurationError):
        raise StoreConfigurationError(planted.key)
    assert hits(planted, said(StoreConfigurationError(planted.key)))
