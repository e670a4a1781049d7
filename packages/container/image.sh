#!/usr/bin/env bash
# Makes the image as a file for `docker load` and `podman load`, without Docker: the root file system of the Dockerfile's last stage
# as one layer, and its configuration. Reproducible but for what Debian's packages write.
# usage: image.sh FOLDER IMAGE.tar      FOLDER has palimpsest_*.deb (make deb)
# shellcheck disable=SC2016
set -euo pipefail
image=$(realpath -m "${2:?usage: image.sh FOLDER IMAGE.tar}")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
. "$here/packages/clean_root.sh" "$1"
cp "$here"/packages/container/{install,healthy}.sh "$folder"/palimpsest_*.deb "$clean/tmp/"
inside '/tmp/install.sh /tmp/palimpsest_*.deb /tmp/healthy.sh; rm -rf /tmp/*' >"$clean.log" 2>&1 || { cat "$clean.log"; exit 1; }
rm -f "$clean.log" "$clean/etc/apt/apt.conf.d/50host" "$clean/etc/resolv.conf"
echo 'deb http://deb.debian.org/debian forky main' >"$clean/etc/apt/sources.list"
work=$(mktemp -d "$(dirname "$clean")/image.XXXXXX")
trap 'rm -rf --one-file-system "$clean" "$work"' EXIT
time=$(git -C "$here" log -1 --format=%ct)
tar --sort=name --mtime="@$time" --numeric-owner --exclude=./dev/* --exclude=./proc/* -C "$clean" -cf "$work/layer.tar" .
python3 - "$here/Dockerfile" "$work" "$time" "$(sed -n 's/^project(palimpsest VERSION \([0-9.]*\).*/\1/p' "$here/CMakeLists.txt")" <<'PY'
"""Writes the image's configuration as the last stage of the Dockerfile has it, and Docker's manifest."""
import datetime
import hashlib
import json
import pathlib
import re
import sys

dockerfile, work, time, version = pathlib.Path(sys.argv[1]).read_text(), pathlib.Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
stage = dict(re.findall(r"^(ENV|USER|VOLUME|EXPOSE|STOPSIGNAL|ENTRYPOINT|CMD|HEALTHCHECK) (.*)$", dockerfile.split("\nFROM ")[-1], re.M))
created = datetime.datetime.fromtimestamp(time, datetime.timezone.utc).isoformat()
check = json.loads(stage["HEALTHCHECK"].split(" CMD ")[1])
seconds = {key: int(value) * 10**9 for key, value in re.findall(r"--([a-z-]+)=(\d+)s", stage["HEALTHCHECK"])}
layer = hashlib.sha256((work / "layer.tar").read_bytes()).hexdigest()
config = {"architecture": "amd64", "os": "linux", "created": created, "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer}"]},
          "history": [{"created": created, "created_by": "packages/container/image.sh"}],
          "config": {"Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", stage["ENV"]], "User": stage["USER"],
                     "Volumes": {path: {} for path in json.loads(stage["VOLUME"])}, "ExposedPorts": {f"{stage['EXPOSE']}/tcp": {}},
                     "StopSignal": stage["STOPSIGNAL"], "Entrypoint": json.loads(stage["ENTRYPOINT"]), "Cmd": json.loads(stage["CMD"]),
                     "Healthcheck": {"Test": ["CMD", *check], "Interval": seconds["interval"], "Timeout": seconds["timeout"],
                                     "StartPeriod": seconds["start-period"]}}}
(work / "config.json").write_text(json.dumps(config, sort_keys=True))
(work / "manifest.json").write_text(json.dumps([{"Config": "config.json", "RepoTags": [f"palimpsest:{version}"], "Layers": ["layer.tar"]}]))
PY
mkdir -p "$(dirname "$image")"
tar --sort=name --mtime="@$time" --owner=0 --group=0 --numeric-owner -C "$work" -cf "$image" manifest.json config.json layer.tar
ls -lh "$image" | awk '{ print $5, $9 }'
