#!/usr/bin/env python3
"""deploy/ray and bad input: odd headers and paths, replicas that answer garbage or die in mid-stream, options that cannot
work, clients that leave, servers that hang, draining, scaling.

  make scale-check
"""

import gzip
import http.client
import json
import os
import pathlib
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "tools" / "setup")]
import environment  # noqa: E402
from scale_ray import FLAGS, PACKAGES, Application  # noqa: E402
from server import REPO  # noqa: E402

TEXT, CHAT = "/v1/completions", "/v1/chat/completions"

# Serves HTTP on the socket of --host as a broken server does. The file MODE says how.
BROKEN = """#!{python}
import socket, sys, os, threading, time
path = sys.argv[sys.argv.index("--host") + 1].removeprefix("unix:")
listener = socket.socket(socket.AF_UNIX); listener.bind(path); listener.listen(64)
print("palimpsest serves nothing, at", path, flush=True)
OK = b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\n{{}}"
SSE = b"HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n"
def piece(text): return b"%x\\r\\n%s\\r\\n" % (len(text), text)
def talk(client):
    request = client.recv(65536)
    mode = open({mode!r}).read()
    if request.startswith(b"GET /health"): client.sendall(OK)
    elif mode == "garbage": client.sendall(os.urandom(3000))
    elif mode == "nothing": pass
    elif mode == "half a head": client.sendall(b"HTTP/1.1 200 OK\\r\\nContent-")
    elif mode == "half a body": client.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 100\\r\\n\\r\\n{{\\"a\\": ")
    elif mode == "stream of pings": client.sendall(SSE + piece(b": ping\\n\\n"))
    elif mode == "half a stream": client.sendall(SSE + piece(b"data: {{\\"choices\\": []}}\\n\\n")); time.sleep(0.3)
    elif mode == "half an event":
        client.sendall(SSE + piece(b"data: {{\\"choices\\": []}}\\n\\ndata: {{\\"cho")); time.sleep(0.3)
    elif mode == "half of the first event": client.sendall(SSE + piece(b": ping\\n\\ndata: {{\\"cho")); time.sleep(0.3)
    elif mode == "die": os._exit(3)
    client.close()
while True:
    client, _ = listener.accept()
    threading.Thread(target=talk, args=(client,)).start()
"""


def ask(url, method, path, body=b"", headers=()):
    """Status, headers and body; the connection's own errors are raised."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    connection.putrequest(method, path, skip_accept_encoding=True)
    for name, value in headers:
        connection.putheader(name, value)
    if body or method == "POST":
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    answer = connection.getresponse()
    head, raw = {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    return answer.status, head, gzip.decompress(raw) if head.get("content-encoding") == "gzip" else raw


def post(url, path, body, headers=()):
    return ask(url, "POST", path, json.dumps(body).encode(), [("Content-Type", "application/json"), *headers])


def clean(status, headers, body):
    """An error of the API that a client understands."""
    error = json.loads(body)["error"]
    assert error["message"] and error["type"] and status in (400, 404, 405, 413, 429, 431, 503), (status, body)
    if status in (429, 503):
        assert headers["retry-after"].isdigit(), headers
    return error


def odd_requests(url):
    body = {"prompt": "Once", "max_tokens": 3, "seed": 1}
    status, headers, raw = post(url, TEXT, body)
    assert status == 200 and headers["content-type"] == "application/json", (status, raw)
    wanted = json.loads(raw)["choices"]
    odd = [[("x-session-id", "")], [("x-session-id", " " * 50)], [("x-session-id", "x" * 7000)],
           [("X-SESSION-ID", "a"), ("x-session-id", "b")],
           [("x-session-id", "\u00e9".encode())], [("x-session-id", "../../etc/passwd")], [("x-session-id", "a\tb")],
           [("x-gateway-destination-endpoint", "10.0.0.1:80")], [("x-forwarded-for", "1.2.3.4, 5.6.7.8")],
           [("traceparent", "00-x")],
           [("Accept-Encoding", "gzip")], [("TE", "trailers")], [("Connection", "x-hop, close"), ("x-hop", "1")],
           [("Expect", "100-continue")], [("x-request-timeout-seconds", "nonsense")], [("Host", "elsewhere.example")],
           [("serve_multiplexed_model_id", "x")], [(f"x-{i}", "y" * 50) for i in range(80)]]  # fmt: skip
    for headers in odd:
        status, _, raw = post(url, TEXT, body, headers)
        assert status == 200 and json.loads(raw)["choices"] == wanted, (headers, status, raw[:300])
    # Ray's proxy: 500 for a header that is not UTF-8; it goes on.
    assert post(url, TEXT, body, [("x-session-id", b"\xff\xe9")])[0] in (400, 500)
    refused = [(TEXT, b"{"), (TEXT, b"[" * 100_000), (TEXT, b"\xff\xfe\x00"), (CHAT, b'{"messages": 3}'),
               (CHAT, b'{"messages": [[]]}'),
               (TEXT, b'{"prompt": "x", "session": {"restore": "../x"}}'), (TEXT, b'{"prompt": "x", "session": 3}'),
               ("/v1/nothing", b"{}"), ("/v1/sessions//edit", b"{}"), ("/v1/sessions/%2e%2e%2fx/edit", b"{}")]  # fmt: skip
    for path, raw in refused:
        clean(*ask(url, "POST", path, raw, [("Content-Type", "application/json")]))
    status, headers, raw = ask(url, "GET", "/metrics")
    assert status == 200 and b"vllm:num_requests_running" in raw, raw[:300]
    got = ask(url, "GET", "/v1/sessions/none/memory?layer=%31&head=%30")
    assert clean(*got)["code"] == "session_not_found", got
    print("odd headers, bodies and paths: passed")


def wait_until(condition, failure, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, failure
        time.sleep(0.2)


def client_leaves(application):
    """A request whose client disconnects does not run to its end."""
    for stream in (True, False):
        connection = http.client.HTTPConnection(application.url.removeprefix("http://"), timeout=60)
        body = {"prompt": "Once", "max_tokens": 1_000_000, "ignore_eos": True, "stream": stream, "cache": "streaming:budget=64"}
        connection.request("POST", TEXT, json.dumps(body))
        wait_until(lambda: running(application) > 0, "the request does not run")
        if stream:
            connection.getresponse().read(2000)
        connection.sock.close()
        connection.close()
        wait_until(lambda: running(application) == 0, "the request still runs")
    print("a client that leaves: passed")


def running(application):
    """Requests in progress of the replicas that a few questions reach."""
    texts = [ask(application.url, "GET", "/metrics", headers=[("x-session-id", str(i))])[2].decode() for i in range(8)]
    return max(
        float(line.split()[-1]) for text in texts for line in text.splitlines() if line.startswith("vllm:num_requests_running")
    )


def hangs(application):
    """A server that does not answer is killed; its requests are answered by others."""
    stuck = application.servers()[0][0]
    os.kill(stuck, signal.SIGSTOP)
    begin = time.monotonic()
    for i in range(8):
        status, _, raw = post(application.url, TEXT, {"prompt": "Once", "max_tokens": 3}, [("x-session-id", str(i))])
        assert status == 200, raw
    wait_until(lambda: stuck not in [server for server, _ in application.servers()], "it was not killed", 60)
    assert time.monotonic() - begin < 90
    wait_until(lambda: len(application.servers()) == 2, "it was not started again", 30)
    print("a server that hangs: passed")


def drains(application):
    """SIGTERM: a stream that runs comes to its end."""
    got = []

    def read():
        body = {"prompt": "Once", "max_tokens": 3000, "ignore_eos": True, "stream": True, "cache": "streaming:budget=64"}
        got.append(post(application.url, TEXT, body)[2])

    reader = threading.Thread(target=read)
    reader.start()
    time.sleep(1.0)
    application.process.send_signal(signal.SIGTERM)
    reader.join(60)
    assert got and got[0].rstrip().endswith(b"data: [DONE]"), got[:1] and got[0][-300:]
    assert application.process.wait(timeout=60) == 0
    assert not application.servers(), "servers outlive the application"
    print("draining: passed")


def broken_replicas(folder):
    mode, program = pathlib.Path(folder, "mode"), pathlib.Path(folder, "broken")
    mode.write_text("garbage")
    program.write_text(BROKEN.format(python=sys.executable, mode=str(mode)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    application = Application(2, program=program)
    try:
        for how in (
            "garbage",
            "nothing",
            "half a head",
            "half a body",
            "stream of pings",
            "half a stream",
            "half an event",
            "half of the first event",
            "die",
        ):
            mode.write_text(how)
            for body in ({"prompt": "x"}, {"prompt": "x", "stream": True}, {"session": {"restore": "a", "save": "a"}}):
                begin = time.monotonic()
                status, headers, raw = post(application.url, TEXT, body)
                if how in ("half a stream", "half an event"):
                    events = raw.decode().strip().split("\n\n")
                    assert status == 200 and json.loads(events[-1].removeprefix("data: "))["error"]["code"] == "replica_lost", (
                        raw
                    )
                else:
                    code = clean(status, headers, raw)["code"]
                    again = "replica_lost" if "session" not in body or how == "die" else "replica_lost_session"
                    assert status == 503 and code.startswith("replica_lost") and code in (again, "replica_lost_session"), (
                        how,
                        raw,
                    )
                assert time.monotonic() - begin < 20, f"{how}: {time.monotonic() - begin} s"
    finally:
        application.end()
    print("replicas that answer garbage, half of an answer, nothing, or die: passed")


def scales(program):
    """Requests that wait start replicas."""
    application = Application(1, *FLAGS, program=program, more=["--max-replicas", "3", "--target-ongoing-requests", "2"])
    try:
        assert len(application.servers()) == 1
        stop = threading.Event()

        def client():
            while not stop.is_set():
                body = {"prompt": "Once", "max_tokens": 400, "ignore_eos": True, "cache": "streaming:budget=64"}
                status, _, raw = post(application.url, TEXT, body)
                assert status == 200, raw

        clients = [threading.Thread(target=client) for _ in range(12)]
        for each in clients:
            each.start()
        wait_until(lambda: len(application.servers()) == 3, "no replica was started", 60)
        stop.set()
        for each in clients:
            each.join(60)
    finally:
        application.end()
    print("scaling on the queue: passed")


def does_not_start():
    for words, part in (
        (["--program", "/no/such/program"], "/no/such/program"),
        (["--replicas", "0"], "replicas"),
        (["--", "--port", "1"], "--port"),
    ):
        ended = subprocess.run(
            [sys.executable, REPO / "deploy" / "ray" / "app.py", *words], capture_output=True, text=True, timeout=120
        )
        assert ended.returncode != 0 and part in ended.stderr, (words, ended.stderr[-500:])
    print("options that cannot work: refused")


def main():
    try:
        environment.enter("ray", PACKAGES, "600 MB on disk, a minute")
    except environment.Unavailable as error:
        sys.exit(f"Ray: skipped, {error}")
    program = os.environ.get("PALIMPSEST_PROGRAM", REPO / "build" / "palimpsest")
    does_not_start()
    with tempfile.TemporaryDirectory() as folder:
        broken_replicas(folder)
        application = Application(2, *FLAGS, "--session-path", folder, program=program)
        try:
            odd_requests(application.url)
            client_leaves(application)
            hangs(application)
            drains(application)
        finally:
            if application.process.poll() is None:
                application.end()
    scales(program)


if __name__ == "__main__":
    main()
