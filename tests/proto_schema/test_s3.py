"""A server of S3 on the loopback that is slow, fails and stops: what is visible is whole, and nothing is lost."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import proto_schema as ps
from proto_schema import helper
from proto_schema.external import addresses
from proto_schema.numpy_helper import from_array, to_array
from purexport.cli.main import main

pytestmark = pytest.mark.full

pytest.importorskip("moto", reason="install the extra storage-test: pip install '.[storage-test]'")
s3fs = pytest.importorskip("s3fs", reason="install the extra storage-test: pip install '.[storage-test]'")
werkzeug_app = pytest.importorskip("moto.moto_server.werkzeug_app")
serving = pytest.importorskip("werkzeug.serving")

SIDE = 1280  # of a matrix: with several parts of an upload to a data file
PART = 5 << 20  # the least that S3 takes

Started = Callable[[str, "list[tuple[str, str]]"], Any]


class Server:
    """Moto's server behind a rule, which may fail a request: it gets its method, path and query, and the count."""

    def __init__(self) -> None:
        self._app = werkzeug_app.DomainDispatcherApplication(werkzeug_app.create_backend_app)
        self._lock = threading.Lock()
        self.requests: list[tuple[str, str, str]] = []
        self.rule: Callable[[str, str, str, int], str] = lambda *request: ""
        self.after: Callable[[str, str, str], None] = lambda *request: None
        self._server = serving.make_server("127.0.0.1", 0, self, threaded=True)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def __call__(self, environ: dict[str, Any], start: Started) -> Iterable[bytes]:
        request = environ["REQUEST_METHOD"], environ["PATH_INFO"], environ.get("QUERY_STRING", "")
        with self._lock:
            self.requests.append(request)
            failure = self.rule(*request, len(self.requests))
        if failure:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start(failure, [("Content-Length", "0"), ("Connection", "close")])
            return [b""]
        made = list(self._app(environ, start))
        self.after(*request)
        return made

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    made = Server()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": made.address,
        "AWS_MAX_ATTEMPTS": "2",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(addresses, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(addresses, "PART", PART)
    s3fs.S3FileSystem.clear_instance_cache()
    client().call_s3("create_bucket", Bucket="bucket")
    yield made
    made.rule = lambda *request: ""
    s3fs.S3FileSystem.clear_instance_cache()
    made.close()
    client_of_moto()


def client_of_moto() -> None:
    """The server's state is that of its process."""
    from moto.s3.models import s3_backends

    s3_backends.reset()


def client() -> Any:
    return s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)


def names() -> list[str]:
    return sorted(path.removeprefix("bucket/") for path in client().find("bucket"))


def made(plus: float = 0) -> ps.ModelProto:
    weights = [
        from_array(np.random.default_rng(seed).standard_normal((SIDE, SIDE)).astype(np.float32) + plus, f"w{seed}")
        for seed in range(3)
    ]
    nodes = [helper.make_node("MatMul", ["x", item.name or ""], [f"y_{item.name}"]) for item in weights]
    given = helper.make_tensor_value_info("x", 1, ["n", SIDE])
    results = [helper.make_tensor_value_info(f"y_{item.name}", 1, ["n", SIDE]) for item in weights]
    graph = helper.make_graph(nodes, "g", [given], results, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def is_model(model: ps.ModelProto, plus: float = 0) -> bool:
    assert model.graph is not None
    expected = made(plus)
    assert expected.graph is not None
    pairs = zip(model.graph.initializer, expected.graph.initializer, strict=True)
    return all(np.array_equal(to_array(found), to_array(wanted)) for found, wanted in pairs)


def every_tenth(method: str, path: str, query: str, count: int) -> str:
    return "500 Internal Server Error" if count % 10 == 0 else ""


def test_every_tenth_request_fails(server: Server, tmp_path: Path) -> None:
    """Saves, reads, verbs from storage to storage: as if nothing had happened."""
    server.rule = every_tenth
    ps.save(made(), "s3://bucket/m.onnx", external_data=True, checksums=True)
    assert is_model(ps.load("s3://bucket/m.onnx"))
    assert main(["show", "s3://bucket/m.onnx"]) == 0 and main(["check", "s3://bucket/m.onnx", "--checksums"]) == 0
    assert main(["quantize", "s3://bucket/m.onnx", "-o", "s3://bucket/q.onnx", "--shard-size", "1MB"]) == 0
    ps.save(made(), tmp_path / "m.onnx", external_data=True)
    assert main(["quantize", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "q.onnx")]) == 0
    here, there = ps.load(tmp_path / "q.onnx"), ps.load("s3://bucket/q.onnx")
    assert here.graph is not None and there.graph is not None
    pairs = zip(here.graph.initializer, there.graph.initializer, strict=True)
    assert all(np.array_equal(to_array(one), to_array(other)) for one, other in pairs)
    ps.save(made(1), "s3://bucket/m.onnx", external_data=True)
    assert is_model(ps.load("s3://bucket/m.onnx"), 1) and len([name for name in names() if name[0] == "m"]) == 2
    assert len(server.requests) > 30


def test_show_reads_little(server: Server) -> None:
    ps.save(made(), "s3://bucket/m.onnx", external_data=True)
    before = len(server.requests)
    assert main(["show", "s3://bucket/m.onnx"]) == 0
    assert not any(".data" in path and method == "GET" for method, path, _ in server.requests[before:])


STOPS = [
    ("the first part", r"PUT .*\.data \?.*partNumber=1\b"),
    ("a later part", r"PUT .*\.data \?.*partNumber=3\b"),
    ("the end of the data", r"POST .*\.data \?uploadId="),
    ("the model", r"PUT .*/m\.onnx \?partNumber="),
]


@pytest.mark.parametrize("there", [False, True], ids=["new", "over another"])
@pytest.mark.parametrize("pattern", [row[1] for row in STOPS], ids=[row[0] for row in STOPS])
def test_a_server_that_stops(pattern: str, there: bool, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """From one request on it answers none of this kind: an error, and what was there is there."""
    monkeypatch.setattr(addresses, "_LOOKS", 2)
    if there:
        ps.save(made(), "s3://bucket/m.onnx", external_data=True)
    before = names()

    def stops(method: str, path: str, query: str, count: int) -> str:
        return "503 Service Unavailable" if re.match(pattern, f"{method} {path} ?{query}") else ""

    server.rule = stops
    with pytest.raises(OSError, match=r"s3://bucket/m\.onnx"):
        ps.save(made(1), "s3://bucket/m.onnx", external_data=True)
    server.rule = lambda *request: ""
    assert names() == before and (not there or is_model(ps.load("s3://bucket/m.onnx")))
    ps.save(made(1), "s3://bucket/m.onnx", external_data=True)
    assert is_model(ps.load("s3://bucket/m.onnx"), 1) and len(names()) == 2


def test_an_upload_that_ends_unheard(server: Server) -> None:
    """The answer to the end of an upload is lost, and the request that is sent again finds no upload: it is saved.

    So does a server that takes longer to join the parts than its client waits.
    """
    lost = set()

    def again(method: str, path: str, query: str, count: int) -> str:
        return "500 Internal Server Error" if method == "POST" and "uploadId=" in query and path in lost else ""

    def lose_answers(method: str, path: str, query: str) -> None:
        if method == "POST" and query.startswith("uploadId="):
            lost.add(path)
            raise RuntimeError("the answer is lost")

    server.rule, server.after = again, lose_answers
    ps.save(made(), "s3://bucket/m.onnx", external_data=True)
    assert len(lost) == 2 and is_model(ps.load("s3://bucket/m.onnx"))


def test_a_reader_while_writers_replace_the_model(server: Server) -> None:
    """It has one of the models whole, or an error that says what happened."""
    ps.save(made(), "s3://bucket/m.onnx", external_data=True)
    seen, failed = set(), []
    ended = threading.Event()

    def write() -> None:
        for plus in (1, 2, 3):
            ps.save(made(plus), "s3://bucket/m.onnx", external_data=True)
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while not ended.is_set() or 3 not in seen:
            try:
                model = ps.load("s3://bucket/m.onnx")
                seen |= {plus for plus in range(4) if is_model(model, plus)} or {-1}
            except ps.ExternalDataError as error:
                failed.append(str(error))
            time.sleep(0.01)
    finally:
        writer.join()
    assert 3 in seen and -1 not in seen and len(names()) == 2
    assert all("has changed or been replaced" in said or "there is no such object" in said for said in failed)
