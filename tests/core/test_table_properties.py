from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.core.errors import InvalidTablePropertyError, UnsupportedFeatureError
from lakelog.core.property_checks import Directives, canonical, check_properties, check_settable, split_directives
from lakelog.core.table_properties import DESCRIPTORS, TableProperties, parse_interval

DAY = 86_400_000


def test_an_empty_configuration_has_the_defaults_of_the_protocol() -> None:
    properties = TableProperties({})
    assert not properties.append_only
    assert properties.checkpoint_interval == 10
    assert properties.log_retention_ms == 30 * DAY
    assert properties.deleted_file_retention_ms == 7 * DAY
    assert properties.enable_expired_log_cleanup
    assert properties.data_skipping_num_indexed_cols == 32
    assert properties.data_skipping_stats_columns is None
    assert properties.string_prefix_length == 32
    assert properties.checkpoint_write_stats_as_json
    assert not properties.checkpoint_write_stats_as_struct
    assert properties.set_transaction_retention_ms is None
    assert properties.isolation_level == "Serializable"
    assert properties.compression_codec is None
    assert properties.column_mapping_mode == "none"
    assert not properties.enable_change_data_feed
    assert not properties.enable_deletion_vectors
    assert not properties.enable_row_tracking
    assert not properties.enable_in_commit_timestamps


def test_values_are_read_in_any_letter_case() -> None:
    properties = TableProperties(
        {
            "delta.appendOnly": "TRUE",
            "delta.isolationLevel": "writeserializable",
            "delta.parquet.compression.codec": "ZSTD",
            "delta.columnMapping.mode": "Name",
            "delta.setTransactionRetentionDuration": "INTERVAL 2 Days",
            "delta.dataSkippingStatsColumns": "a,`b.c`.d",
            "delta.enableRowTracking": "True",
        }
    )
    assert properties.append_only
    assert properties.isolation_level == "WriteSerializable"
    assert properties.compression_codec == "zstd"
    assert properties.column_mapping_mode == "name"
    assert properties.set_transaction_retention_ms == 2 * DAY
    assert properties.data_skipping_stats_columns == "a,`b.c`.d"
    assert properties.enable_row_tracking


def test_the_old_name_of_the_change_data_feed_counts_only_where_the_new_one_is_unset() -> None:
    assert TableProperties({"delta.enableChangeDataCapture": "true"}).enable_change_data_feed
    both = TableProperties({"delta.enableChangeDataCapture": "true", "delta.enableChangeDataFeed": "false"})
    assert not both.enable_change_data_feed


def test_one_bad_value_spoils_only_its_own_property() -> None:
    properties = TableProperties({"delta.checkpointInterval": "often", "delta.appendOnly": "true", "delta.unheardOf": "x"})
    assert properties.append_only
    with pytest.raises(InvalidTablePropertyError, match=r"delta\.checkpointInterval is 'often'"):
        _ = properties.checkpoint_interval


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("interval 30 days", 30 * DAY),
        ("1 week", 7 * DAY),
        ("interval 1 week 2 hours", 7 * DAY + 2 * 3_600_000),
        ("INTERVAL 1 Day", DAY),
        ("interval 0 seconds", 0),
        ("interval 1.5 seconds", 1_500),
        ("interval 1999 microseconds", 1),
        ("interval 2 days -1 day", DAY),
        ("  interval   3   minutes  ", 180_000),
        ("interval '5' days", 5 * DAY),
    ],
)
def test_intervals(text: str, milliseconds: int) -> None:
    assert parse_interval(text) == milliseconds


@pytest.mark.parametrize(
    "text", ["", "interval", "interval 1 month", "1 year", "interval -1 day", "7", "days", "interval 1 fortnight", "1 day!"]
)
def test_what_is_no_interval_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_interval(text)


def test_an_interval_that_no_clock_could_subtract() -> None:
    with pytest.raises(ValueError, match="longer than"):
        parse_interval("interval 999999999999999 weeks")


@given(st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from([("week", 7 * DAY), ("day", DAY), ("hour", 3_600_000)])), min_size=1))
def test_an_interval_is_the_sum_of_its_terms(terms: list[tuple[int, tuple[str, int]]]) -> None:
    text = "interval " + " ".join(f"{n} {unit}{'s' if n != 1 else ''}" for n, (unit, _) in terms)
    assert parse_interval(text) == sum(n * size for n, (_, size) in terms)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("delta.appendOnly", "yes"),
        ("delta.checkpointInterval", "0"),
        ("delta.checkpointInterval", "1_0"),
        ("delta.checkpointInterval", "2147483648"),
        ("delta.dataSkippingNumIndexedCols", "-2"),
        ("delta.dataSkippingStatsColumns", "a,`b"),
        ("delta.logRetentionDuration", "interval 2 months"),
        ("delta.isolationLevel", "ReadCommitted"),
        ("delta.isolationLevel", "SnapshotIsolation"),
        ("delta.parquet.compression.codec", "zip"),
        ("delta.checkpointPolicy", "v3"),
        ("delta.autoOptimize.autoCompact", "maybe"),
    ],
)
def test_an_unfit_value_is_refused_by_key_and_table(key: str, value: str) -> None:
    with pytest.raises(InvalidTablePropertyError) as caught:
        check_properties({key: value}, "/t")
    assert key in str(caught.value)
    assert "/t" in str(caught.value)


@pytest.mark.parametrize(
    ("key", "nearest"),
    [("delta.appendonly", "delta.appendOnly"), ("delta.checkpointIntervall", "delta.checkpointInterval"), ("delta.zzz", None)],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(key: str, nearest: str | None) -> None:
    with pytest.raises(InvalidTablePropertyError) as caught:
        check_properties({key: "true"}, "/t")
    assert f"{key}. {f'The nearest is {nearest}; a' if nearest else 'A'} property of your own must not begin" in str(caught.value)


@pytest.mark.parametrize(
    ("key", "feature"),
    [
        ("delta.universalFormat.enabledFormats", "universalFormat"),
        ("delta.compatibility.symlinkFormatManifest.enabled", "delta.compatibility.symlinkFormatManifest.enabled"),
    ],
)
def test_what_comes_later_is_refused_by_name(key: str, feature: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match="comes with a later release") as caught:
        check_properties({key: "true"}, "/t")
    assert caught.value.features == (feature,)
    assert key in str(caught.value)


INTERNAL = [
    "delta.columnMapping.maxColumnId",
    "delta.COLUMNMAPPING.maxcolumnid",
    "delta.rowTracking.materializedRowIdColumnName",
    "delta.inCommitTimestampEnablementVersion",
]


@pytest.mark.parametrize("key", INTERNAL)
def test_keys_that_are_not_the_users_are_refused(key: str) -> None:
    for check in (lambda: check_properties({key: "2"}, "/t"), lambda: check_settable([key], "/t")):
        with pytest.raises(InvalidTablePropertyError, match=r"/t: delta\.[a-zA-Z.]+ is not set by users.*Leave the property out"):
            check()


@pytest.mark.parametrize("key", ["delta.constraints.positive", "Delta.Constraints.positive"])
def test_constraints_are_no_properties(key: str) -> None:
    for check in (lambda: check_properties({key: "a > 0"}, "/t"), lambda: check_settable([key], "/t")):
        with pytest.raises(InvalidTablePropertyError, match=r"/t: delta\.constraints\.positive is a CHECK constraint.*ADD CONSTRAINT"):
            check()


def test_what_a_statement_may_set() -> None:
    check_settable(["delta.appendOnly", "owner", "delta.feature.rowTracking"], "/t")


def test_the_log_outlives_the_files_it_names() -> None:
    check_properties({"delta.logRetentionDuration": "7 days"}, "/t")
    with pytest.raises(InvalidTablePropertyError, match=r"delta\.logRetentionDuration is shorter than delta\.deletedFileRetentionDuration"):
        check_properties({"delta.logRetentionDuration": "6 days"}, "/t")


def test_good_properties_and_the_users_own_pass() -> None:
    check_properties({"delta.appendOnly": "true", "delta.dataSkippingNumIndexedCols": "-1", "owner": "me", "Deltas": "x"}, "/t")


def test_numbers_have_a_unit() -> None:
    for descriptor in DESCRIPTORS:
        counts = isinstance(descriptor.default, int) and not isinstance(descriptor.default, bool)
        assert bool(descriptor.unit) == (counts or descriptor.key.endswith("Duration")), descriptor.key


def test_every_key_has_one_descriptor() -> None:
    keys = [descriptor.key for descriptor in DESCRIPTORS]
    assert len(keys) == len({key.lower() for key in keys})


def test_keys_of_delta_are_known_in_any_letter_case() -> None:
    given = {"DELTA.appendonly": "true", "Owner": "me", "delta.FEATURE.rowTracking": "supported", "delta.Constraints.Positive": "a > 0"}
    assert canonical(given, "/t") == {
        "delta.appendOnly": "true",
        "Owner": "me",
        "delta.feature.rowTracking": "supported",
        "delta.constraints.Positive": "a > 0",
    }


def test_a_key_given_twice_must_say_the_same() -> None:
    assert canonical({"delta.appendOnly": "true", "delta.APPENDONLY": "true"}, "/t") == {"delta.appendOnly": "true"}
    with pytest.raises(
        InvalidTablePropertyError, match=r"/t: the table property delta\.appendOnly is given twice, as 'true' and as 'false'"
    ):
        canonical({"delta.appendOnly": "true", "delta.APPENDONLY": "false"}, "/t")


def test_directives_are_not_stored() -> None:
    stored, directives = split_directives(
        {
            "delta.feature.rowTracking": "supported",
            "delta.feature.clustering": "Enabled",
            "delta.minReaderVersion": "2",
            "delta.minWriterVersion": "5",
            "delta.ignoreProtocolDefaults": "TRUE",
            "delta.appendOnly": "true",
        },
        "/t",
    )
    assert stored == {"delta.appendOnly": "true"}
    assert directives == Directives(features=("rowTracking", "clustering"), reader_version=2, writer_version=5, ignore_defaults=True)
    assert split_directives({"owner": "me"}, "/t") == ({"owner": "me"}, Directives())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("delta.feature.rowTracking", "true"),
        ("delta.minReaderVersion", "4"),
        ("delta.minReaderVersion", "two"),
        ("delta.minWriterVersion", "8"),
        ("delta.minWriterVersion", "0"),
        ("delta.ignoreProtocolDefaults", "perhaps"),
    ],
)
def test_a_directive_that_asks_for_nothing_that_there_is(key: str, value: str) -> None:
    for check in (split_directives, check_properties):
        with pytest.raises(InvalidTablePropertyError, match=rf"/t: the table property {key} is '{value}', but must be"):
            check({key: value}, "/t")


def test_properties_are_held_against_the_others_of_the_table() -> None:
    beside = {"delta.deletedFileRetentionDuration": "20 days", "delta.checkpointInterval": "often"}
    check_properties({"delta.logRetentionDuration": "20 days"}, "/t", beside=beside)
    check_properties({"delta.appendOnly": "true"}, "/t", beside={"delta.logRetentionDuration": "1 day"})
    with pytest.raises(InvalidTablePropertyError, match="is shorter than"):
        check_properties({"delta.logRetentionDuration": "19 days"}, "/t", beside=beside)
