"""Is a run's page served to this machine alone, always new, and is nothing else of the machine?"""

import http.client
import json
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from logo_ssl import cli
from logo_ssl.errors import UserError
from logo_ssl.report.collect import RunCollector
from logo_ssl.report.commands import Watch, wait_for_runs
from logo_ssl.report.html import page
from logo_ssl.report.serve import PageRenewer, Served, address_of, open_server
from logo_ssl.run import Run

SECRET = "<script>alert(1)</script>"


@contextmanager
def listening(latest=lambda: Served("v1", b"<p>page</p>"), host="127.0.0.1"):
    """Gives a function that asks the server."""
    server = open_server(host, 0, latest, lambda: b"library")
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def ask(path, method="GET", name=None):
        connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", f"127.0.0.1:{server.server_address[1]}" if name is None else name)
        connection.endheaders()
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer, content

    try:
        yield ask
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def counted(monkeypatch):
    """How often encoders were looked at."""
    calls = []
    look = RunCollector._collect

    def counted(self, run, recipe):
        calls.append(run.path)
        return look(self, run, recipe)

    monkeypatch.setattr(RunCollector, "_collect", counted)
    return calls


def test_three_addresses_answer_and_nothing_else(tmp_path):
    (tmp_path / "secret.txt").write_text("secret")
    with listening() as ask:
        assert ask("/")[1] == b"<p>page</p>"
        assert ask("/?a=b")[1] == b"<p>page</p>"
        assert ask("/version")[1] == b"v1"
        assert ask("/plotly.js")[1] == b"library"
        for path in (
            f"{tmp_path}/secret.txt",
            f"/../../../..{tmp_path}/secret.txt",
            f"/%2e%2e/%2e%2e/..{tmp_path}/secret.txt",
            "/metrics.jsonl",
            "/..",
            "/plotly.js/../../etc/passwd",
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
        assert ask("/", "HEAD")[1] == b""
        assert ask("/", "POST")[0].status == 501
        assert ask("/", "PUT")[0].status == 501


def test_a_foreign_name_that_points_here_is_turned_away():
    with listening() as ask:
        for name in ("evil.example", "evil.example:8600", "127.0.0.1.evil.example", "[", ""):
            assert ask("/", name=name)[0].status in (400, 403), name
        for name in ("localhost", "localhost:8600", "127.0.0.1", "[::1]:80"):
            assert ask("/", name=name)[0].status == 200, name


def test_only_loopback_is_listened_on_unless_asked():
    assert Watch(()).host == "127.0.0.1"
    server = open_server(Watch(()).host, 0, lambda: Served("", b""), lambda: b"")
    assert server.server_address[0] == "127.0.0.1"
    server.server_close()


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_addresses_of_ipv6_are_listened_on():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    server = open_server("::1", 0, lambda: Served("", b""), lambda: b"")
    assert server.server_address[0] == "::1"
    server.server_close()


def test_an_address_is_written_as_browsers_take_it():
    hosts = ("127.0.0.1", "0.0.0.0", "::1", "::", "box")
    assert [address_of(host) for host in hosts] == ["127.0.0.1", "127.0.0.1", "[::1]", "[::1]", "box"]


def test_a_port_in_use_is_told_in_a_sentence():
    taken = open_server("127.0.0.1", 0, lambda: Served("", b""), lambda: b"")
    try:
        with pytest.raises(UserError, match="port"):
            open_server("127.0.0.1", taken.server_address[1], lambda: Served("", b""), lambda: b"")
    finally:
        taken.server_close()
    with pytest.raises(UserError, match="port"):
        open_server("127.0.0.1", 99999, lambda: Served("", b""), lambda: b"")


def test_the_page_is_made_anew_when_a_file_changed_and_the_encoder_is_looked_at_once(make_run, counted):
    run = make_run()
    run.metrics_file.write_text('{"step": 1, "loss": 5.25, "epoch": 0}\n')
    keeper = PageRenewer([run.path], RunCollector(crops=False).collect)
    first = keeper.latest
    assert counted == []  # the first page comes at once
    assert b"being computed" in first.page
    assert keeper.look()
    with run.metrics_file.open("a") as file:
        file.write('{"step": 2, "loss": 4.75, "epoch": 0}\n')
    assert keeper.look()
    second = keeper.latest
    assert second.version != first.version
    assert b"4.75" in second.page
    assert b"data-map" in second.page
    with run.metrics_file.open("a") as file:
        file.write('{"step": 3, "loss": 4.5, "epoch": 0}\n')
    assert keeper.look()
    assert keeper.latest.version != second.version
    assert b"data-map" in keeper.latest.page
    assert len(counted) == 1
    run.write_evaluation("knn", {"protocol": "p", "results": []})
    assert keeper.look()
    assert not keeper.look()
    assert len(counted) == 1


def test_a_new_encoder_is_looked_at_again(make_run, counted):
    run = make_run()
    keeper = PageRenewer([run.path], RunCollector(crops=False).collect)
    keeper.look()
    content = run.backbone_file.read_bytes()
    run.backbone_file.write_bytes(content + b"x")
    keeper.look()
    assert len(counted) == 2
    assert b"is not a whole encoder" in keeper.latest.page


def test_a_file_that_cannot_be_read_now_is_looked_at_again(make_run):
    run = make_run()
    keeper, said, stop = PageRenewer([run.path], RunCollector(crops=False, images=0).collect), [], threading.Event()
    whole = run.recipe_file.read_text()
    run.recipe_file.write_text("{")

    def say(sentence):
        said.append(sentence)
        run.recipe_file.write_text(whole)
        threading.Timer(0.2, stop.set).start()

    keeper.renew(stop, 0.01, say)
    assert len(said) == 1
    assert "The page is not renewed" in said[0]
    assert b"being computed" not in keeper.latest.page


def test_the_page_carries_the_version_that_is_served(make_run):
    keeper = PageRenewer([make_run().path], RunCollector(crops=False, images=0).collect)
    assert f'<body data-version="{keeper.latest.version}">'.encode() in keeper.latest.page


def test_a_fault_of_any_kind_is_told_on_the_page_and_looked_at_again_after_the_next_change(make_run, monkeypatch):
    run = make_run()
    collector = RunCollector(crops=False, images=0)
    keeper, said, told, stop = PageRenewer([run.path], collector.collect), [], [], threading.Event()
    tell = keeper.collect
    keeper.collect = lambda *_, **__: 1 / 0

    def say(sentence):
        said.append(sentence)
        with listening(lambda: keeper.latest) as ask:
            told.append(ask("/version")[1].decode())
        keeper.collect = tell
        run.metrics_file.write_text('{"step": 1, "loss": 5.25, "epoch": 0}\n')
        threading.Timer(0.3, stop.set).start()

    keeper.renew(stop, 0.01, say)
    assert said == ["The page is not renewed: ZeroDivisionError: division by zero"]
    assert told[0].split("\n")[1:] == said
    assert b"5.25" in keeper.latest.page
    assert keeper.latest.trouble == ""


def test_served_names_are_text_and_the_page_asks_for_its_library(tmp_path, make_run):
    run = make_run()
    hostile = Run(tmp_path / "x" / SECRET.replace("/", "_"))
    hostile.path.parent.mkdir()
    run.path.rename(hostile.path)
    text = page(RunCollector(crops=False, images=0).collect([hostile]), version="")
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert len(text) < 200_000
    assert "connect-src &#39;self&#39;" in text


def test_the_command_serves_until_it_is_stopped(make_run, capsys, monkeypatch):
    run, seen = make_run(), []
    run.metrics_file.write_text('{"step": 1, "loss": 5.25, "epoch": 0}\n')

    def serve(server):
        ask = http.client.HTTPConnection(*server.server_address, timeout=60)
        thread = threading.Thread(target=server._handle_request_noblock)
        thread.start()
        ask.request("GET", "/")
        seen.append(ask.getresponse().read())
        thread.join()
        raise KeyboardInterrupt

    monkeypatch.setattr("logo_ssl.report.serve.Server.serve_forever", serve)
    cli.parse(["watch", str(run.path), "--port", "0", "--images", "0"]).run()
    out = capsys.readouterr().out
    assert "Watching: http://127.0.0.1:" in out
    assert "Everybody" not in out
    assert "the runs go on" in out
    assert b"5.25" in seen[0]


@pytest.mark.parametrize(
    "line", [[], ["--port", "1"], ["nowhere"], ["{run}", "--every", "0"], ["{run}", "--images", "9999"]]
)
def test_what_cannot_be_watched_is_told_in_a_sentence(line, make_run, monkeypatch):
    monkeypatch.setattr("logo_ssl.report.commands.PATIENCE_S", 0)
    run = make_run()
    with pytest.raises(UserError):
        cli.parse(["watch", *(word.format(run=run.path) for word in line)]).run()


def test_a_run_that_is_about_to_begin_is_waited_for(make_run, monkeypatch):
    run, said = make_run(), []
    there = run.path.rename(run.path.with_name("later"))
    monkeypatch.setattr("logo_ssl.report.commands.time.sleep", lambda seconds: there.rename(run.path))
    wait_for_runs(run.path, said.append)
    assert run.recipe_file.is_file()
    assert said == [f"{run.path} holds no run yet; waiting for it, 30 seconds at most."]


def test_a_folder_of_runs_is_watched_with_those_that_begin_later(make_run, tmp_path, monkeypatch):
    monkeypatch.setattr("logo_ssl.report.commands.time.sleep", lambda seconds: pytest.fail("waited"))
    make_run("table/row/seed0")
    out, said = tmp_path / "table", []
    wait_for_runs(out, said.append)
    assert said == []
    keeper = PageRenewer([out], RunCollector(crops=False, images=0).collect)
    assert b"<title>LoGo: seed0</title>" in keeper.latest.page
    later = make_run("table/other/seed0", seed=1)
    keeper.discovery.until = 0  # ten seconds later
    assert keeper.look()
    assert b"<title>LoGo: other/seed0, row/seed0</title>" in keeper.latest.page
    later.metrics_file.write_text('{"step": 1, "loss": 5.25, "epoch": 0}\n')
    assert keeper.look()
    assert b"5.25" in keeper.latest.page


def test_a_run_that_is_removed_is_told_and_the_page_stays(make_run):
    run = make_run()
    keeper, said, stop = PageRenewer([run.path], RunCollector(crops=False, images=0).collect), [], threading.Event()
    before = keeper.latest
    run.recipe_file.unlink()
    keeper.renew(stop, 0.01, lambda sentence: said.append(sentence) or stop.set())
    assert "The page is not renewed: " in said[0]
    assert keeper.latest.page == before.page


def test_metrics_that_are_being_written_do_not_stop_the_page(make_run):
    run = make_run()
    run.metrics_file.write_text(json.dumps({"step": 1, "loss": 3.5}) + '\n{"step": 2, "lo')
    keeper = PageRenewer([run.path], RunCollector(crops=False, images=0).collect)
    assert b"3.5" in keeper.latest.page


COMPUTING = """
import os, signal, sys, threading
import torch
from logo_ssl.report.serve import Background
from logo_ssl.signals import Stopped

inside = threading.Event()

def compute(stop):
    x = torch.rand(300, 300, requires_grad=True)
    while True:
        inside.set()
        (x @ x).sum().backward()

with Background(compute):
    inside.wait()
    if len(sys.argv) > 1:
        raise Stopped(signal.SIGTERM)
"""


@pytest.mark.parametrize(("arguments", "code"), [([], 0), (["stopped"], 143)])
def test_a_process_ends_at_once_with_its_code_while_a_thread_is_inside_torch(arguments, code):
    """Python would freeze the thread, and torch take the process down (SIGABRT)."""
    done = subprocess.run([sys.executable, "-c", COMPUTING, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    assert "terminate" not in done.stderr
