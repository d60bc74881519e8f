"""Which store a path gets, and every way in which settings can be wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping

import pytest

from lakelog.core.errors import StoreConfigurationError, UnknownSchemeError
from lakelog.storage import configure, log_store_for, registry
from lakelog.storage.local import LocalLogStore
from lakelog.storage.log_store import LogStore
from lakelog.storage.registry import SCHEMES, SHORT_NAMES, options_for, scheme_of, store_name_for
from lakelog.storage.testing.memory import MemoryLogStore

OWN = f"{__name__}.OwnStore"


class OwnStore(MemoryLogStore):
    def __init__(self, options: Mapping[str, object]) -> None:
        super().__init__()
        self.options = options


def no_store(options: Mapping[str, object]) -> object:
    return options


@pytest.fixture
def configured() -> Iterator[Callable[[Mapping[str, Mapping[str, object]]], None]]:
    """``configure``, taken back after the test."""
    schemes: set[str] = set()

    def call(settings: Mapping[str, Mapping[str, object]]) -> None:
        schemes.update(settings)
        configure(settings)

    yield call
    configure({scheme: {} for scheme in schemes})


def own_options(store: LogStore) -> Mapping[str, object]:
    assert isinstance(store, OwnStore)
    return store.options


@pytest.mark.parametrize(
    ("path", "scheme"),
    [
        ("/tmp/a:b", "file"),
        ("/tmp/s3://x", "file"),
        ("FILE:///x", "file"),
        ("file:/x", "file"),
        ("s3a://bucket/key", "s3a"),
        ("my+own-1.x://y", "my+own-1.x"),
        ("", "file"),
    ],
)
def test_schemes(path: str, scheme: str) -> None:
    assert scheme_of(path) == scheme


@pytest.mark.parametrize("path", ["/tmp/t", "file:/tmp/t", "file:///tmp/t"])
@pytest.mark.parametrize("settings", [{}, {"spark.lakelog.file.logstore.class": "local"}, {"spark.lakelog.s3.logstore.class": "nonsense"}])
def test_local_paths_get_the_local_store(path: str, settings: dict[str, str]) -> None:
    assert isinstance(log_store_for(path, settings), LocalLogStore)


@pytest.mark.parametrize("path", ["gs://bucket/t", "dbfs:/t", "http://host/t"])
def test_an_unknown_scheme_is_refused_with_the_remedy(path: str) -> None:
    with pytest.raises(UnknownSchemeError) as raised:
        log_store_for(path)
    message, scheme = str(raised.value), path.partition(":")[0]
    assert path in message
    assert f"spark.lakelog.{scheme}.logstore.class" in message
    assert "lakelog.storage.configure" in message


@pytest.mark.parametrize("scheme", sorted(scheme for scheme, name in SCHEMES.items() if SHORT_NAMES[name].location is None))
def test_a_store_of_a_later_release_is_refused_by_name(scheme: str) -> None:
    with pytest.raises(UnknownSchemeError, match=f"'{SCHEMES[scheme]}' for '{scheme}' comes with a later release"):
        log_store_for(f"{scheme}://bucket/t")


def test_every_scheme_of_every_short_name_has_a_default() -> None:
    assert set(SCHEMES) == {scheme for store in SHORT_NAMES.values() for scheme in store.schemes}


def test_the_tables_are_read_only() -> None:
    with pytest.raises(TypeError):
        SCHEMES["gs"] = "s3"  # type: ignore[index]


def test_a_dotted_path_serves_its_scheme_alone() -> None:
    settings = {"spark.lakelog.gs.logstore.class": OWN, "spark.lakelog.gs.project": "p", "spark.lakelog.s3.project": "q"}
    assert own_options(log_store_for("gs://bucket/t", settings)) == {"project": "p"}
    assert isinstance(log_store_for("/tmp/t", settings), LocalLogStore)


def test_configure_sets_class_and_options_and_takes_them_back(configured: Callable[..., None]) -> None:
    configured({"GS": {"logstore.class": OWN, "retries": 3}})
    assert own_options(log_store_for("gs://bucket/t")) == {"retries": 3}
    configured({"gs": {"logstore.class": OWN}})
    assert own_options(log_store_for("gs://bucket/t")) == {}
    configured({"gs": {}})
    with pytest.raises(UnknownSchemeError):
        log_store_for("gs://bucket/t")


def test_settings_that_agree_add_up(configured: Callable[..., None]) -> None:
    configured({"gs": {"logstore.class": OWN, "project": "p", "region": "r"}})
    settings = {"spark.lakelog.gs.logstore.class": OWN, "spark.lakelog.gs.project": "p", "spark.lakelog.gs.zone": "z"}
    assert own_options(log_store_for("gs://bucket/t", settings)) == {"project": "p", "region": "r", "zone": "z"}


def test_settings_that_disagree_on_the_class_are_an_error(configured: Callable[..., None]) -> None:
    configured({"gs": {"logstore.class": OWN}})
    with pytest.raises(StoreConfigurationError, match=r"disagree on logstore\.class") as raised:
        log_store_for("gs://bucket/t", {"spark.lakelog.gs.logstore.class": "other.Store"})
    assert OWN in str(raised.value)
    assert "other.Store" in str(raised.value)
    assert "lakelog.storage.configure" in str(raised.value)


def test_settings_that_disagree_on_an_option_are_an_error(configured: Callable[..., None]) -> None:
    configured({"gs": {"logstore.class": OWN, "project": "p"}})
    with pytest.raises(StoreConfigurationError, match="disagree on project"):
        log_store_for("gs://bucket/t", {"spark.lakelog.gs.project": "q"})


def test_ours_and_delta_sparks_key_that_disagree_are_an_error() -> None:
    settings = {"spark.lakelog.s3a.logstore.class": "s3", "spark.delta.logStore.s3a.impl": "io.delta.storage.S3DynamoDBLogStore"}
    with pytest.raises(StoreConfigurationError, match=r"'s3'.*'dynamodb'"):
        log_store_for("s3a://bucket/t", settings)


@pytest.mark.parametrize(
    "jvm_class",
    ["io.delta.storage.HDFSLogStore", "io.delta.storage.LocalLogStore", "org.apache.spark.sql.delta.storage.HDFSLogStore"],
)
@pytest.mark.parametrize("key", ["spark.delta.logStore.file.impl", "delta.logStore.file.impl"])
def test_delta_sparks_classes_for_local_paths_are_our_local_store(key: str, jvm_class: str) -> None:
    assert isinstance(log_store_for("/tmp/t", {key: jvm_class, "spark.lakelog.file.logstore.class": "local"}), LocalLogStore)


@pytest.mark.parametrize(
    ("jvm_class", "scheme", "name"),
    [
        ("io.delta.storage.HDFSLogStore", "hdfs", "hdfs"),
        ("io.delta.storage.S3SingleDriverLogStore", "s3a", "s3"),
        ("io.delta.storage.S3DynamoDBLogStore", "s3a", "dynamodb"),
        ("io.delta.storage.AzureLogStore", "abfss", "azure"),
    ],
)
def test_delta_sparks_classes_have_twins(jvm_class: str, scheme: str, name: str) -> None:
    assert store_name_for(f"{scheme}://bucket/t", {f"spark.delta.logStore.{scheme}.impl": jvm_class}) == name


def test_the_class_that_loses_commits_is_understood_with_a_warning_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_warned", set())
    key = "spark.delta.logStore.s3a.impl"
    for _ in range(2):
        assert store_name_for("s3a://bucket/t", {key: "io.delta.storage.S3SingleDriverLogStore"}) == "s3"
    (record,) = caplog.records
    assert key in record.getMessage()
    assert "commits are lost" in record.getMessage()


@pytest.mark.parametrize("path", ["s3://bucket/t", "s3a://bucket/t", "S3N://bucket/t"])
def test_the_spellings_of_s3_share_their_settings(path: str, configured: Callable[..., None]) -> None:
    configured({"s3": {"logstore.class": OWN, "a": "1"}, "s3a": {"b": "2"}})
    assert own_options(log_store_for(path, {"spark.lakelog.s3n.c": "3"})) == {"a": "1", "b": "2", "c": "3"}


def test_the_spellings_of_s3_must_not_disagree(configured: Callable[..., None]) -> None:
    configured({"s3": {"logstore.class": OWN, "region": "eu-west-1"}})
    with pytest.raises(StoreConfigurationError, match=r"disagree on region.*'eu-west-1'.*'us-east-1'"):
        log_store_for("s3a://bucket/t", {"spark.lakelog.s3a.region": "us-east-1"})


@pytest.mark.parametrize("key", ["key", "secret", "token", "endpoint_url", "fs.s3a.session.token"])
def test_a_disagreement_shows_no_secret(key: str, configured: Callable[..., None]) -> None:
    configured({"s3": {key: "planted-one"}})
    with pytest.raises(StoreConfigurationError, match=f"disagree on {key}") as raised:
        log_store_for("s3a://bucket/t", {f"spark.lakelog.s3a.{key}": "planted-two"})
    assert "planted" not in str(raised.value)


def test_the_stores_of_s3_get_hadoops_and_delta_sparks_keys() -> None:
    settings = {
        "spark.hadoop.fs.s3a.access.key": "from the start",
        "fs.s3a.access.key": "as it is now",
        "spark.hadoop.fs.s3a.endpoint": "http://localhost:9000",
        "spark.io.delta.storage.S3DynamoDBLogStore.ddb.tableName": "log",
        "spark.hadoop.fs.azure.x": "1",
        "spark.sql.x": "2",
    }
    assert options_for("s3://bucket/t", settings) == {
        "fs.s3a.access.key": "as it is now",
        "fs.s3a.endpoint": "http://localhost:9000",
        "io.delta.storage.S3DynamoDBLogStore.ddb.tableName": "log",
    }
    assert options_for("/tmp/t", settings) == {}
    own = log_store_for("s3://bucket/t", {**settings, "spark.lakelog.s3.logstore.class": OWN})
    assert own_options(own) == {}, "a class of the user's own takes the options that were given to it"


def test_delta_sparks_two_spellings_of_a_dynamodb_key_must_not_disagree() -> None:
    key = "io.delta.storage.S3DynamoDBLogStore.ddb.region"
    with pytest.raises(StoreConfigurationError, match=r"ddb\.region say two things"):
        options_for("s3://bucket/t", {key: "a", f"spark.{key}": "b"})


@pytest.mark.parametrize("jvm_class", ["io.delta.storage.GCSLogStore", "com.example.LocalLogStore", "LocalLogStore"])
def test_a_jvm_class_without_a_twin_is_refused(jvm_class: str) -> None:
    with pytest.raises(StoreConfigurationError, match="has no twin") as raised:
        log_store_for("gs://bucket/t", {"spark.delta.logStore.gs.impl": jvm_class})
    assert jvm_class in str(raised.value)
    assert "spark.lakelog.gs.logstore.class" in str(raised.value)


@pytest.mark.parametrize("key", ["spark.delta.logStore.class", "delta.logStore.class"])
def test_one_class_for_every_filesystem_is_refused(key: str) -> None:
    with pytest.raises(StoreConfigurationError, match="every filesystem") as raised:
        log_store_for("/tmp/t", {key: "io.delta.storage.HDFSLogStore"})
    assert "spark.lakelog.file.logstore.class" in str(raised.value)


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("loca", "neither a short name"),
        ("s3", "serves s3, s3a"),
        ("no.such.module.Store", "cannot be imported"),
        (f"{__name__}.NoSuchStore", "has no class 'NoSuchStore'"),
        (f"{__name__}.OWN", "has no class 'OWN'"),
        (f"{__name__}.no_store", "gives a dict and no lakelog LogStore"),
    ],
)
def test_what_cannot_serve_is_refused_naming_the_setting(location: str, message: str) -> None:
    with pytest.raises(StoreConfigurationError, match=message) as raised:
        log_store_for("/tmp/t", {"spark.lakelog.file.logstore.class": location})
    assert "spark.lakelog.file.logstore.class" in str(raised.value)
    assert location in str(raised.value)


def test_options_that_a_store_does_not_take_are_refused() -> None:
    with pytest.raises(StoreConfigurationError, match="takes no options; remove endpoint_url"):
        log_store_for("/tmp/t", {"spark.lakelog.file.endpoint_url": "x"})


@pytest.mark.parametrize("scheme", ["s3://", "", "a b"])
def test_configure_refuses_what_is_no_scheme(scheme: str) -> None:
    with pytest.raises(StoreConfigurationError, match="is not a scheme"):
        configure({scheme: {"logstore.class": "local"}})


def test_configure_refuses_a_class_object() -> None:
    with pytest.raises(StoreConfigurationError, match="must be a string"):
        configure({"gs": {"logstore.class": OwnStore}})


def test_no_store_is_imported_before_a_path_asks_for_it() -> None:
    program = (
        "import sys, lakelog.storage as s; assert 'lakelog.storage.local' not in sys.modules\n"
        "s.log_store_for('/tmp/t'); assert 'lakelog.storage.local' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("location", [".x", "json.loads", "decimal.Decimal"])
def test_a_class_that_cannot_be_made_is_named(location: str) -> None:
    with pytest.raises(StoreConfigurationError, match=r"spark\.lakelog\.file\.logstore\.class names"):
        log_store_for("/tmp/t", {"spark.lakelog.file.logstore.class": location})
