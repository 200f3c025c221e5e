"""Is a run's page served to this machine alone, always new, and is nothing else of the machine?"""

import http.client
import json
import socket
import threading
from contextlib import contextmanager

import pytest
from filelock import FileLock

from logo_ssl.errors import UserError
from logo_ssl.files import write
from logo_ssl.report.collect import RunCollector
from logo_ssl.report.commands import Watch
from logo_ssl.report.serve import Handler, PageRenewer, Served, Server, open_server, serving
from logo_ssl.run import LOCK


@contextmanager
def listening(latest=lambda: Served("v1", b"<p>page</p>")):
    """Gives a function that asks the server."""
    server = open_server("127.0.0.1", 0, latest)

    def ask(path, method="GET", name=None):
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", f"127.0.0.1:{server.server_port}" if name is None else name)
        connection.endheaders()
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer, content

    with serving(server):
        yield ask


@pytest.fixture
def collects(monkeypatch):
    """How often encoders were looked at."""
    calls, collect = [], RunCollector._collect
    monkeypatch.setattr(RunCollector, "_collect", lambda *given: calls.append(given) or collect(*given))
    return calls


def without_images(*runs, **options):
    """Keeps a page of runs by their files alone."""
    collector = RunCollector(crops=False, images=0)
    return PageRenewer([getattr(run, "path", run) for run in runs], collector.collect, **options)


def log(run, loss, how="a"):
    with run.metrics_file.open(how) as file:
        file.write(json.dumps({"step": 1, "loss": loss, "epoch": 0}) + "\n")


def test_two_addresses_answer_and_nothing_else(tmp_path):
    (tmp_path / "secret.txt").write_text("secret")
    with listening() as ask:
        assert ask("/")[1] == ask("/?a=b")[1] == b"<p>page</p>"
        assert ask("/version")[1] == b"v1"
        for path in (
            f"{tmp_path}/secret.txt",
            f"/../../../..{tmp_path}/secret.txt",
            f"/%2e%2e/%2e%2e/..{tmp_path}/secret.txt",
            "/metrics.jsonl",
            "/..",
            "/version/../../etc/passwd",
            "http://elsewhere.example/",
        ):
            answer, content = ask(path)
            assert answer.status == 404, path
            assert b"secret" not in content
            assert b"root:" not in content


def test_answers_are_not_guessed_kept_or_shared():
    with listening() as ask:
        answer, _ = ask("/")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert answer.headers["Access-Control-Allow-Origin"] is None
        assert ask("/", "POST")[0].status == ask("/", "PUT")[0].status == 501


def test_a_foreign_name_that_points_here_is_turned_away():
    with listening() as ask:
        for name in ("evil.example", "evil.example:8600", "127.0.0.1.evil.example", "[", ""):
            assert ask("/", name=name)[0].status in (400, 403), name
        for name in ("localhost", "localhost:8600", "127.0.0.1", "[::1]:80"):
            assert ask("/", name=name)[0].status == 200, name


def test_idle_connections_do_not_keep_the_server(monkeypatch):
    monkeypatch.setattr(Handler, "timeout", 0.5)
    server = open_server("127.0.0.1", 0, lambda: Served("v1", b""))
    address = ("127.0.0.1", server.server_port)
    with serving(server):
        with socket.create_connection(address, timeout=30) as idle:
            assert idle.recv(1) == b""  # closed: nothing was asked in time
        open_still = socket.create_connection(address)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    open_still.close()


def test_open_connections_are_bounded_and_do_not_keep_the_server(monkeypatch):
    monkeypatch.setattr(Server, "most", threading.active_count() + 1 + 8)
    monkeypatch.setattr(Handler, "timeout", 0.5)
    threads, server = threading.active_count(), open_server("127.0.0.1", 0, lambda: Served("v1", b""))
    with serving(server):
        address = ("127.0.0.1", server.server_port)
        idle = [socket.create_connection(address, timeout=30) for _ in range(30)]
        assert all(connection.recv(1) == b"" for connection in idle[8:])  # closed: no thread is free
        assert threading.active_count() <= threads + 1 + 8
        assert all(connection.recv(1) == b"" for connection in idle)  # closed: nothing was asked in time
        free = http.client.HTTPConnection(*address, timeout=30)
        free.request("GET", "/version")
        assert free.getresponse().read() == b"v1"
        idle += [socket.create_connection(address) for _ in range(4)]
    with pytest.raises(ConnectionRefusedError):  # the server ended, though some were still open
        socket.create_connection(address)
    for connection in idle:
        connection.close()


def test_only_loopback_is_listened_on_unless_asked():
    with open_server(Watch(()).host, 0, lambda: Served("", b"")) as server:
        assert server.server_address[0] == "127.0.0.1"
        for port in (server.server_port, 99999):
            with pytest.raises(UserError, match=str(port)):
                open_server("127.0.0.1", port, lambda: Served("", b""))
    with open_server("0.0.0.0", 0, lambda: Served("", b"")) as server, serving(server) as address:
        assert address == f"http://127.0.0.1:{server.server_port}/"


def test_the_page_is_made_anew_when_a_file_changed_and_the_encoder_is_looked_at_once(make_run, collects):
    run = make_run()
    log(run, 5.25)
    keeper = PageRenewer([run.path], RunCollector(crops=False).collect)
    assert keeper.look(quickly=True)
    assert collects == []  # the first page comes at once
    assert b"being computed" in keeper.latest.page
    assert keeper.look()
    seen = {keeper.latest.version}
    for loss in (b"4.75", b"4.125"):
        log(run, float(loss))
        assert keeper.look()
        assert loss in keeper.latest.page
        assert b"data-map" in keeper.latest.page
        seen.add(keeper.latest.version)
    assert len(seen) == 3
    write(run.evaluation_file("knn"), json.dumps({"protocol": "p", "results": []}))
    assert keeper.look()
    assert not keeper.look()
    assert len(collects) == 1
    assert f'<body data-version="{keeper.latest.version}">'.encode() in keeper.latest.page
    run.provenance_file.write_text('{"commit": "abc123"}')
    run.backbone_file.write_bytes(run.backbone_file.read_bytes() + b"x")
    assert keeper.look()
    assert len(collects) == 2


def test_the_page_is_made_anew_when_training_stops(make_run):
    run = make_run()
    log(run, 5.25)
    keeper = without_images(run)
    with FileLock(run.path / LOCK):
        assert keeper.look()
        assert b"running, " in keeper.latest.page
    assert keeper.look()
    assert b"stopped, " in keeper.latest.page


def test_a_file_that_cannot_be_read_now_is_looked_at_again_and_the_page_stays(make_run):
    run, said = make_run(), []
    keeper = without_images(run, say=said.append)
    assert keeper.look()
    before, whole = keeper.latest.page, run.recipe_file.read_text()
    for damage in (lambda: run.recipe_file.write_text("{"), run.recipe_file.unlink):
        damage()
        assert not keeper.look()
        assert not keeper.look()
        assert keeper.latest.page == before
        assert keeper.latest.trouble == said[-1]
        run.recipe_file.write_text(whole)
        assert keeper.look()
        assert keeper.latest.trouble == ""
    assert len(said) == 2  # each once


def test_a_fault_of_any_kind_is_told_on_the_page_and_looked_at_again_after_the_next_change(make_run):
    run, said = make_run(), []
    keeper = without_images(run, say=said.append)
    collect, keeper.collect = keeper.collect, lambda *_, **__: 1 / 0
    with listening(lambda: keeper.latest) as ask:
        assert not keeper.look()
        assert ask("/version")[1].decode().split("\n")[1:] == said
    keeper.collect = collect
    assert not keeper.look()
    log(run, 5.25)
    assert keeper.look()
    assert (len(said), keeper.latest.trouble) == (1, "")
    assert b"5.25" in keeper.latest.page


@pytest.mark.parametrize("options", [{"port": 99999}, {"every": 0.0}, {"images": 9999}, {"data": "nowhere"}], ids=str)
def test_what_cannot_be_watched_is_a_user_error(options, make_run):
    with pytest.raises(UserError):
        Watch((make_run().path,), **options).run()


def test_runs_that_begin_later_are_watched(make_run, tmp_path):
    said = []
    keeper = without_images(tmp_path / "table", say=said.append)
    assert not keeper.look()
    assert "table" in keeper.latest.trouble
    make_run("table/row/seed0")
    assert keeper.look()
    assert b"<title>LoGo: seed0</title>" in keeper.latest.page
    assert not keeper.look()
    make_run("table/other/seed0", seed=1)
    assert keeper.look()
    assert b"<title>LoGo: other/seed0, row/seed0</title>" in keeper.latest.page
