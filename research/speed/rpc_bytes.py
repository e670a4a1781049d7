#!/usr/bin/env python3
"""Bytes between palimpsest and an RPC server in a decode step, by method: counted by a proxy between the two.

  tools/env python3 research/speed/rpc_bytes.py [--methods full streaming:budget=64]
"""
import argparse
import pathlib
import socket
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from common import REPO, run  # noqa: E402
from versus_rpc import free_port, serve  # noqa: E402

METHODS = ["full", "streaming:budget=64", "streaming:budget=64,mechanism=shift", "h2o:budget=64", "tova:budget=64", "snapkv:budget=64"]
FEW, MANY = 100, 200  # decode steps of two runs, whose difference counts


class Proxy:
    def __init__(self, server):
        self.server = server
        self.sent = self.received = 0
        self.port = free_port()
        listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self.accept, args=(listener,), daemon=True).start()

    def accept(self, listener):
        while True:
            client, _ = listener.accept()
            server = socket.create_connection(self.server)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.pump, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self.pump, args=(server, client, False), daemon=True).start()

    def pump(self, source, target, sent):
        try:
            while data := source.recv(1 << 20):
                if sent:
                    self.sent += len(data)
                else:
                    self.received += len(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--program", default=str(REPO / "build/palimpsest"))
    parse.add_argument("--model", default=str(REPO / "models/palimpsest-stories.gguf"))
    parse.add_argument("--methods", nargs="*", default=METHODS)
    o = parse.parse_args()
    server, address = serve(o.program)
    host, port = address.split(":")
    proxy = Proxy((host, int(port)))
    print("| method | to the server | from it |\n|---|---|---|")
    try:
        for method in o.methods:
            counts = []
            for steps in (FEW, MANY):
                proxy.sent = proxy.received = 0
                run([o.program, "run", "-m", o.model, "-p", "Once upon a time", "-n", steps, "--ignore-eos", "--temp", "0",
                     "--method", method, "--rpc", f"127.0.0.1:{proxy.port}"])
                time.sleep(0.2)  # the proxy's last bytes
                counts.append((proxy.sent, proxy.received))
            sent, received = ((many - few) / (MANY - FEW) for few, many in zip(*counts))
            print(f"| {method} | {sent:,.0f} | {received:,.0f} |", flush=True)
    finally:
        server.kill()


if __name__ == "__main__":
    main()
