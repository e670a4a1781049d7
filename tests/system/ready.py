#!/usr/bin/env python3
"""A server as a service: a Unix socket, API keys from a file, systemd's notifications, a drain at SIGTERM, and the
examples of docs/tls.md: nginx with TLS in front (skipped with a message if nginx or openssl is missing), and the unit.

  make serve-check
"""
import argparse
import http.client
import json
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time

from server import REPO, Server, free_port

KEY = "secret"


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout=60):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def ask(connection, method, path, body=None, key=KEY):
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    return connection.getresponse()


def story(tokens, **more):
    return {"prompt": "Once upon a time", "max_tokens": tokens, "seed": 1, "ignore_eos": True, **more}


def blocks_of_page(language):
    return re.findall(rf"```{language}\n(.*?)```", (REPO / "docs" / "tls.md").read_text(), re.S)


def service(program, folder):
    """READY=1, answers, then SIGTERM while a stream runs: STOPPING=1, 503 for others, the stream's end, exit 0."""
    path, keys = str(folder / "s.sock"), folder / "keys"
    keys.write_text(f"\n{KEY}\nother\n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(folder / "notify"))
        notified.settimeout(20)
        server = Server(program, "--host", f"unix:{path}", "--api-key-file", keys, "--shutdown-timeout", 60,
                        environment={"NOTIFY_SOCKET": str(folder / "notify")})
        assert server.url == f"unix:{path}", server.url
        assert notified.recv(100) == b"READY=1"
        assert ask(UnixConnection(path), "GET", "/v1/models").status == 200
        assert ask(UnixConnection(path), "GET", "/v1/models", key="other").status == 200
        assert ask(UnixConnection(path), "GET", "/v1/models", key="wrong").status == 401
        stream = ask(UnixConnection(path), "POST", "/v1/completions", story(4_000, stream=True))
        stream.readline()
        done = threading.Thread(target=lambda: lines.extend(stream.read().splitlines()))
        lines = []
        done.start()
        server.process.terminate()
        assert notified.recv(100) == b"STOPPING=1"
        end = time.monotonic() + 10
        while (late := ask(UnixConnection(path), "POST", "/v1/completions", story(1))).status != 503:
            assert late.status == 200 and time.monotonic() < end, late.status
        assert late.getheader("Retry-After")
        done.join(60)
        assert lines[-2] == b"data: [DONE]", lines[-3:]
        server.process.wait(60)  # a second SIGTERM would end it at once
        server.end()
        assert not pathlib.Path(path).exists()
    print("unix socket, API keys of a file, systemd's notifications, drain at SIGTERM: passed")


def certificate(folder):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
                   check=True, capture_output=True)


def proxy(program, folder):
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    missing = [name for name, path in (("nginx", nginx), ("openssl", shutil.which("openssl"))) if path is None]
    if missing:
        print(f"TLS by a proxy: skipped, {' and '.join(missing)} not installed")
        return
    certificate(folder)
    (block,) = blocks_of_page("nginx")
    port, path = free_port(), folder / "proxied.sock"
    for words, ours in (("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"), ("/etc/ssl/certs/llm.example.pem", folder / "cert.pem"),
                        ("/etc/ssl/private/llm.example.key", folder / "key.pem"), ("llm.example", "localhost"),
                        ("/run/palimpsest/palimpsest.sock", path)):
        assert words in block, words
        block = block.replace(words, str(ours))
    temporary = "\n".join(f"  {kind}_temp_path {folder}/{kind};"
                          for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    conf = folder / "nginx.conf"
    conf.write_text(f"worker_processes 1;\npid {folder}/nginx.pid;\nerror_log {folder}/error.log;\n"
                    f"events {{}}\nhttp {{\n  access_log off;\n{temporary}\n{block}}}\n")
    server = Server(program, "--host", f"unix:{path}", "--api-key", KEY)
    path.chmod(0o777)  # nginx's workers are another user's if it runs as root
    front = subprocess.Popen([nginx, "-c", conf, "-p", folder, "-g", "daemon off;"], stderr=subprocess.PIPE, text=True)
    try:
        trust = ssl.create_default_context(cafile=folder / "cert.pem")

        def https():
            return http.client.HTTPSConnection("localhost", port, timeout=60, context=trust)

        end = time.monotonic() + 10
        while True:
            try:
                health = ask(https(), "GET", "/health")
                break
            except OSError:
                assert front.poll() is None and time.monotonic() < end, (front.stderr, conf.read_text())
                time.sleep(0.05)
        assert health.status == 200, (health.status, (folder / "error.log").read_text())
        assert ask(https(), "GET", "/v1/models", key="wrong").status == 401
        answer = json.load(ask(https(), "POST", "/v1/completions", story(30)))
        assert answer["usage"]["completion_tokens"] == 30, answer
        assert ask(https(), "POST", "/v1/completions", story(1, user="x" * 2_000_000)).status == 200
        # Tokens arrive one by one, not when the stream ends; and it ends here when the client leaves.
        connection = https()
        stream = ask(connection, "POST", "/v1/completions", story(10**8, stream=True))
        assert sum(stream.readline().startswith(b"data: {") for _ in range(20)) >= 9
        connection.close()
        stream.close()
        end = time.monotonic() + 20
        while not re.search(rb"^palimpsest_num_requests_running\S* 0$", ask(https(), "GET", "/metrics").read(), re.M):
            assert time.monotonic() < end, "the request runs on after its client left"
            time.sleep(0.1)
    finally:
        front.terminate()
        front.wait(30)
        server.end()
    print("TLS by nginx (docs/tls.md): answers, keys, large bodies, streams, disconnects: passed")


def unit(folder):
    """The package's unit with the page's drop-in."""
    if shutil.which("systemd-analyze") is None:
        print("systemd unit: skipped, systemd-analyze is not installed")
        return
    (block,) = blocks_of_page("ini")
    path = folder / "palimpsest.service"
    path.write_text((REPO / "packages" / "debian" / path.name).read_text().replace("/usr/bin/palimpsest", shutil.which("true")))
    drop_in = folder / "palimpsest.service.d"
    drop_in.mkdir()
    (drop_in / "proxy.conf").write_text(block)
    done = subprocess.run(["systemd-analyze", "--man=no", "verify", path], capture_output=True, text=True)
    wrong = [line for line in done.stderr.splitlines() if path.name in line or "proxy.conf" in line]
    assert done.returncode == 0 and not wrong, done.stderr
    print("systemd: the package's unit with the drop-in of docs/tls.md: passed")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--program", default=REPO / "build" / "palimpsest")
    arguments = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        folder.chmod(0o755)
        service(arguments.program, folder)
        proxy(arguments.program, folder)
        unit(folder)


if __name__ == "__main__":
    main()
