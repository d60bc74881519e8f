"""How the servers themselves are kept, started and ended, tried on stand-ins that cost nothing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from integration.servers import NotToBeHad, cache_folder, hadoop_aws_jars
from integration.servers.cache import cached, run_tool
from integration.servers.dynamodb_local import DynamoDBLocal
from integration.servers.minio import MinIO
from integration.servers.process import answers, running

_ROOT = Path(__file__).parents[1]
# Serves HTTP, and holds a connection to whoever wants to know when it ends.
_SERVER = """
import http.server, socket, sys
held = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAKELOG_SERVERS", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_cache_is_where_the_variables_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LAKELOG_SERVERS", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("LAKELOG_SERVERS")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "lakelog"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "lakelog"


def test_what_many_ask_for_at_once_is_made_once(cache: Path) -> None:
    made = []
    together = threading.Barrier(8, timeout=60)

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "part").write_text("whole", encoding="utf-8")

    def ask(_: int) -> Path:
        together.wait()
        return cached("thing-1", make)

    with ThreadPoolExecutor(8) as pool:
        folders = set(pool.map(ask, range(8)))
    assert folders == {cache / "thing-1"}
    assert len(made) == 1
    assert made[0] != cache / "thing-1", "it is made elsewhere, for others take what is there for whole"
    assert (cache / "thing-1" / "part").read_text(encoding="utf-8") == "whole"


def test_what_failed_leaves_nothing_and_is_made_the_next_time(cache: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "part").write_text("half", encoding="utf-8")
        raise NotToBeHad("no registry")

    with pytest.raises(NotToBeHad, match="no registry"):
        cached("thing-1", fail)
    assert [path.name for path in cache.iterdir() if not path.name.endswith(".lock")] == []
    # A build that was killed leaves its part behind.
    (cache / ".thing-1.part").mkdir()
    (cache / ".thing-1.part" / "part").write_text("half", encoding="utf-8")
    assert list(cached("thing-1", lambda folder: None).iterdir()) == []


def test_a_tool_that_is_missing_or_fails_is_a_reason(tmp_path: Path) -> None:
    with pytest.raises(NotToBeHad, match=r"^MinIO is not to be had: no lakelog-no-such-tool on the PATH$"):
        run_tool("MinIO", ["lakelog-no-such-tool"], folder=tmp_path)
    program = "import sys; print('[ERROR] no such version'); print('bye'); sys.exit(3)"
    with pytest.raises(NotToBeHad, match=r"^MinIO is not to be had: .+ failed: \[ERROR\] no such version$"):
        run_tool("MinIO", [sys.executable, "-c", program], folder=tmp_path)


def test_what_is_not_to_be_had_says_so_by_name(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LAKELOG_MINIO_URL", "LAKELOG_DYNAMODB_URL", "JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotToBeHad, match=r"^MinIO is not to be had: no go on the PATH"), MinIO.running(tmp_path / "minio", say=str):
        pass
    with pytest.raises(NotToBeHad, match=r"^DynamoDB Local is not to be had: no Java"), DynamoDBLocal.running(tmp_path / "ddb", say=str):
        pass
    with pytest.raises(NotToBeHad, match=r"^hadoop-aws is not to be had: no mvn on the PATH"):
        hadoop_aws_jars(say=str)


def test_a_server_that_is_named_and_does_not_answer_is_no_skip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        monkeypatch.setenv("LAKELOG_MINIO_URL", url)
        monkeypatch.setenv("LAKELOG_DYNAMODB_URL", url)
        for server in (MinIO, DynamoDBLocal):
            with pytest.raises(RuntimeError, match=f"={url}"), server.running(tmp_path, say=str):
                pass


def test_a_server_ends_with_its_context_and_one_that_does_not_start_says_what_it_printed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        watched = str(listener.getsockname()[1])
        with running(
            "stand-in",
            lambda port: [sys.executable, "-c", _SERVER, str(port), watched],
            lambda port: answers(f"http://127.0.0.1:{port}"),
            folder=tmp_path,
        ):
            held, _ = listener.accept()
        assert held.recv(1) == b"", "the server's end of the connection is closed"
        held.close()
    program = "print('the port is taken'); raise SystemExit(4)"
    with (
        pytest.raises(RuntimeError, match=r"(?s)stand-in did not start; .+the port is taken"),
        running("stand-in", lambda port: [sys.executable, "-c", program], lambda port: False, folder=tmp_path),
    ):
        pass


def test_a_server_does_not_outlive_a_run_that_was_killed(tmp_path: Path) -> None:
    run = f"""
        import os, signal, sys
        from pathlib import Path
        from integration.servers.process import answers, running
        server = [sys.executable, "-c", {_SERVER!r}]
        with running(
            "stand-in",
            lambda port: [*server, str(port), sys.argv[1]],
            lambda port: answers(f"http://127.0.0.1:{{port}}"),
            folder=Path({str(tmp_path)!r}),
        ):
            os.kill(os.getpid(), signal.SIGKILL)
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = [sys.executable, "-c", textwrap.dedent(run), str(listener.getsockname()[1])]
        ended = subprocess.run(command, cwd=_ROOT, env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}, check=False)
        assert ended.returncode == -signal.SIGKILL
        held, _ = listener.accept()
        held.settimeout(60)
        assert held.recv(1) == b""
        held.close()
