#!/usr/bin/env python3
"""Replicas of `palimpsest serve` behind one address, by Ray Serve. README.md has the details.

python deploy/ray/app.py --replicas 3 -- -m model.gguf --session-path /shared/sessions
serve deploy deploy/ray/serve.yaml                       (on a cluster: the same options, as a file)
"""

import argparse
import logging
import math
import os
import pathlib
import shutil
import signal
import sys
import threading
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry
os.environ.setdefault("RAY_AUTH_MODE", "token")  # as `ray start` has it

import pydantic  # noqa: E402
import ray  # noqa: E402
from ray import serve  # noqa: E402
from ray.serve.config import RequestRouterConfig  # noqa: E402


class Options(pydantic.BaseModel):
    """Of the application: the arguments of app.py, or `args` in serve.yaml."""

    model_config = pydantic.ConfigDict(extra="forbid")
    program: str = str(HERE.parent.parent / "build" / "palimpsest")  # on every node
    flags: list[str] = []  # of `palimpsest serve`
    replicas: int = pydantic.Field(1, ge=1)  # at the start, and at least
    max_replicas: int = 0  # above `replicas`: their number follows the queue
    target_ongoing_requests: float = 16  # per replica, running and waiting: the number of replicas follows this
    max_ongoing_requests: int = 256  # per replica; more wait in the router
    cpus: float = 1.0  # of a replica, for Ray's placement: the value of --threads
    routers: int = 1
    grace: float = 30  # seconds for running requests when a replica is stopped


def build(options: Options) -> serve.Application:
    from replica import Replica
    from router import ByKey, Router

    if shutil.which(options.program) is None:
        raise ValueError(f"--program {options.program}: cannot be executed: build it (`make build`), or name it")
    for flag in options.flags:
        if flag.split("=")[0] in ("--host", "--port"):
            raise ValueError(f"{flag}: a replica listens on a Unix socket of its own; the address is app.py's")
    # Workers find these modules by path.
    actor = {"num_cpus": options.cpus, "runtime_env": {"env_vars": {"PYTHONPATH": str(HERE)}}}
    scale = options.max_replicas > options.replicas
    deployment: Any = serve.deployment  # Ray's types are narrower than what it takes
    router_config: Any = RequestRouterConfig
    replica = deployment(
        Replica, name="Replica", ray_actor_options=actor, max_ongoing_requests=options.max_ongoing_requests,
        num_replicas=None if scale else options.replicas,
        autoscaling_config={"min_replicas": options.replicas, "max_replicas": options.max_replicas, "upscale_delay_s": 5,
                            "target_ongoing_requests": options.target_ongoing_requests, "metrics_interval_s": 2,
                            "look_back_period_s": 5} if scale else None,
        request_router_config=router_config(request_router_class=ByKey),
        health_check_period_s=2, health_check_timeout_s=60,
        graceful_shutdown_timeout_s=options.grace + 5, graceful_shutdown_wait_loop_s=0.5)  # fmt: skip
    router = deployment(
        Router, name="Router", num_replicas=options.routers, max_ongoing_requests=10_000,
        ray_actor_options={**actor, "num_cpus": 0}, graceful_shutdown_timeout_s=options.grace + 5)  # fmt: skip
    application: serve.Application = router.bind(replica.bind(options.program, options.flags, options.grace))
    return application


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--address", help="of a Ray cluster; default: one on this machine, for this run")
    parser.add_argument("--host", default="127.0.0.1", help="of the router; 0.0.0.0: set --api-key after --")
    parser.add_argument("--port", type=int, default=8000)
    for name, field in Options.model_fields.items():
        if name != "flags":
            kind: Any = field.annotation
            parser.add_argument("--" + name.replace("_", "-"), type=kind, default=field.default)
    parser.add_argument("flags", nargs="*", metavar="-- FLAG", help="flags of `palimpsest serve`")
    flags = vars(parser.parse_args())
    address, host, port = flags.pop("address"), flags.pop("host"), flags.pop("port")
    try:
        application = build(Options(**flags))
    except ValueError as error:
        sys.exit(f"app.py: {error}")

    # On one machine, more replicas than cores share them.
    wanted = math.ceil(max(flags["replicas"], flags["max_replicas"]) * flags["cpus"])
    local: dict[str, Any] = {} if address else {"include_dashboard": False, "num_cpus": max(os.cpu_count() or 1, wanted)}
    ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING, **local)
    serve.start(http_options={"host": host, "port": port, "request_timeout_s": None})
    serve.run(application, name="palimpsest")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):  # after ray.init, which sets its own
        signal.signal(number, lambda *_: stop.set())
    print(f"palimpsest on Ray, {flags['replicas']} replicas, at http://{host}:{port}", flush=True)
    stop.wait()
    serve.delete("palimpsest")  # no new requests; waits for running ones, then ends the servers
    shut_down: Any = serve.shutdown
    shut_down()
    if not address:
        ray.shutdown()


if __name__ == "__main__":
    main()
