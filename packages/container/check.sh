#!/usr/bin/env bash
# Makes the image's root file system by the steps of its last stage, in a folder, and runs it as the container would: user
# 10001, read-only root, no capabilities; only /sessions and /tmp can be written. Needs no Docker.
# usage: check.sh FOLDER      FOLDER has palimpsest_*.deb (make deb)
# shellcheck disable=SC2016
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
. "$here/packages/clean_root.sh" "$@"
cp "$here"/packages/container/{install,healthy}.sh "$folder"/palimpsest_*.deb "$clean/tmp/"
inside '/tmp/install.sh /tmp/palimpsest_*.deb /tmp/healthy.sh' >"$clean.log" 2>&1 || { cat "$clean.log"; exit 1; }
rm -f "$clean.log"

# Starts the server in the read-only root; prints its health and an answer, then stops it with SIGTERM.
unshare --mount --pid --fork --net --propagation private -- bash -euc '
  ip link set lo up 2>/dev/null || true
  mount --bind "$0" "$0"; mount -o remount,bind,ro "$0"
  cd "$0"; mount -t proc proc proc; mount --rbind /dev dev
  mount -t tmpfs -o mode=1777 tmpfs tmp; mount -t tmpfs -o uid=10001,gid=10001 tmpfs sessions
  as="chroot . setpriv --reuid 10001 --regid 10001 --clear-groups --no-new-privs --bounding-set -all"
  user() { $as "$@"; }
  ! user touch /touched 2>/dev/null || { echo "the root can be written"; exit 1; }
  $as palimpsest serve --host 0.0.0.0 --port 8080 --session-path /sessions >tmp/url 2>tmp/log & server=$!
  started=$(date +%s%N)
  until user /usr/lib/palimpsest/healthy.sh 2>/dev/null; do
    kill -0 $server || { cat tmp/log; exit 1; }
    sleep 0.05
  done
  echo "healthy after $((($(date +%s%N) - started) / 1000000)) ms, as user $(user id -u), root read-only"
  body="{\"prompt\": \"Once\", \"max_tokens\": 5, \"ignore_eos\": true}"
  exec 3<>/dev/tcp/127.0.0.1/8080
  printf "POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: ${#body}\r\n\r\n$body" >&3
  timeout 20 cat <&3 | grep -o "\"completion_tokens\":5"
  kill $server; wait $server && echo "stopped by SIGTERM, exit code 0"' "$clean"
du -sh --apparent-size "$clean" | awk '{print $1 "iB  root file system"}'
