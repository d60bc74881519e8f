"""The Java shells as text: what of them differs between releases of Spark, and all of them as one unit for the compiler."""

from __future__ import annotations

from collections.abc import Collection
from importlib import resources

FILE_FORMAT_WRITER = "org.apache.spark.sql.execution.datasources.FileFormatWriter"
SINK_STATUS = "org.apache.spark.sql.execution.streaming.sinks.SinkFileStatus"

# What differs between releases, patch releases too, so each is probed: name of the probe -> (text in our sources, its form where the
# probe says yes).
_DIFFERENCES = {
    "sink status in its old package": ((SINK_STATUS, "org.apache.spark.sql.execution.streaming.SinkFileStatus"),),
    "write takes a callback": (
        ("Door.seq(trackers), options, 0)", "Door.seq(trackers), options, 0, FileFormatWriter$.MODULE$.write$default$12())"),
        (f"import {FILE_FORMAT_WRITER};", f"import {FILE_FORMAT_WRITER};\nimport {FILE_FORMAT_WRITER}$;"),
    ),
}
# Where OwnParser takes in what Spark's parsers do on some releases alone.
_PARSER_MARK = "  // the rest of ParserInterface"


def java_sources(differences: Collection[str], parser_methods: str = "") -> str:
    """All shells as one compilation unit: their imports together, then one class after the other.

    Args:
        differences: the probes that said yes, of those that `_DIFFERENCES` lists.
        parser_methods: of OwnParser, beside those in its source.
    """
    imports: set[str] = set()
    classes = []
    for file in sorted(resources.files("lakelog.spark").joinpath("java").iterdir(), key=lambda f: f.name):
        if not file.name.endswith(".java"):
            continue
        text = file.read_text(encoding="utf-8")
        for difference in differences:
            for ours, theirs in _DIFFERENCES[difference]:
                text = text.replace(ours, theirs)
        text = text.replace(_PARSER_MARK, parser_methods)
        body = []
        for line in text.splitlines():
            if line.startswith("import "):
                imports.add(line)
            elif not line.startswith("package "):
                body.append(line)
        classes.append("\n".join(body))
    return "\n".join(["package lakelog;", *sorted(imports), *classes])


def own_parser() -> str:
    """The source of OwnParser."""
    return resources.files("lakelog.spark").joinpath("java", "OwnParser.java").read_text(encoding="utf-8")
