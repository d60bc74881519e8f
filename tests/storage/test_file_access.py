"""Opening data files: which path a URI means, and that what travels to executors has no secret in it."""

from __future__ import annotations

import pickle

import pyarrow.fs as pafs
import pytest

from lakelog.core.errors import UnknownSchemeError
from lakelog.storage.file_access import FileAccess, file_access_for, hadoop_entries_for

S3 = FileAccess(kind="s3", bucket="b", options=(("region", "eu-west-1"),))
SECRETS = {"access_key": "planted-key", "secret_key": "planted-secret", "session_token": "planted-token"}


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("s3a://b/t/p=a%2520b/x%20y.parquet", "b/t/p=a%20b/x y.parquet"),
        ("s3://b/x", "b/x"),
        ("S3N://b/x%2By+z", "b/x+y+z"),
        ("s3a://b//x", "b/x"),
    ],
)
def test_the_object_of_a_uri(uri: str, path: str) -> None:
    assert S3.path(uri) == path
    assert S3.log_store_path(uri) == f"s3a://{path}"


@pytest.mark.parametrize("uri", ["s3a://other/x", "file:///b/x", "/b/x", "gs://b/x", "s3a:/b/x", ""])
def test_an_object_elsewhere_is_refused(uri: str) -> None:
    for call in (S3.path, S3.log_store_path):
        with pytest.raises(UnknownSchemeError, match="not in the bucket 'b'") as raised:
            call(uri)
        assert repr(uri) in str(raised.value)


def test_local_paths() -> None:
    access = file_access_for("/tmp/t")
    assert access == file_access_for("file:///tmp/t")
    assert access.path("file:/tmp/a%20b") == access.log_store_path("file:///tmp/a%20b") == "/tmp/a b"


def test_what_prints_and_pickles_has_no_secret() -> None:
    access = S3.with_secrets(SECRETS)
    assert access.secrets == SECRETS
    shown = f"{access!r} {access} {pickle.dumps(access)!r}"
    assert "planted" not in shown
    assert "eu-west-1" in shown
    back = pickle.loads(pickle.dumps(access))
    assert back == S3
    assert back.secrets == {}
    assert back.with_secrets(SECRETS) == access


@pytest.mark.parametrize("path", ["hdfs://host/t", "gs://b/t", "abfss://c@a/t"])
def test_other_filesystems_are_refused_by_name(path: str) -> None:
    with pytest.raises(UnknownSchemeError, match="does not cover scheme"):
        file_access_for(path)


SETTINGS = {
    "spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:1",
    "spark.hadoop.fs.s3a.access.key": "planted-key",
    "spark.hadoop.fs.s3a.secret.key": "planted-secret",
    "spark.lakelog.s3a.region": "eu-west-1",
}


def test_settings_of_the_log_store_open_data_files_too() -> None:
    access = file_access_for("s3n://b/t", SETTINGS)
    assert (access.kind, access.bucket) == ("s3", "b")
    assert dict(access.options)["endpoint_override"] == "127.0.0.1:1"
    assert dict(access.options)["region"] == "eu-west-1"
    assert access.secrets == {"access_key": "planted-key", "secret_key": "planted-secret"}
    assert hash(access) == hash(pickle.loads(pickle.dumps(access)))
    filesystem = access.filesystem()
    assert filesystem.type_name == "s3"
    assert access.filesystem() is filesystem, "made once"


def test_hadoop_is_told_the_same() -> None:
    told = hadoop_entries_for("s3a://b/t", SETTINGS)
    assert told["fs.s3a.endpoint"] == "http://127.0.0.1:1"
    assert told["fs.s3a.secret.key"] == "planted-secret"
    assert hadoop_entries_for("/tmp/t", SETTINGS) == {}


def test_options_of_somebody_elses_store_are_its_own() -> None:
    own = {**SETTINGS, "spark.lakelog.s3a.logstore.class": "mycompany.Vault", "spark.lakelog.s3a.shelf": "7"}
    assert file_access_for("s3a://b/t", own).secrets == {"access_key": "planted-key", "secret_key": "planted-secret"}


@pytest.mark.parametrize("answer", ["eu-north-1", OSError("no network")])
def test_arrow_is_told_the_region_that_a_bucket_is_in(monkeypatch: pytest.MonkeyPatch, answer: object) -> None:
    made: list[dict[str, object]] = []

    def region(bucket: str) -> object:
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(pafs, "resolve_s3_region", region)
    monkeypatch.setattr(pafs, "S3FileSystem", lambda **given: made.append(given))
    FileAccess(kind="s3", bucket=f"bucket-{answer}", options=(("anonymous", True),)).filesystem()
    assert made == [{"anonymous": True, "allow_delayed_open": True, **({"region": answer} if isinstance(answer, str) else {})}]
