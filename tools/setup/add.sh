#!/usr/bin/env bash
# Adds packages to a forky root (for example a fuzzer's compiler), once each.
# usage: add.sh ROOT PACKAGE...
# shellcheck disable=SC2016
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
PROGRESS_LOG=${PALIMPSEST_SETUP_LOG:?the caller names the log}
. "$here/progress.sh"
root=${1:?usage: add.sh ROOT PACKAGE...}
shift
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

exec 9>"$root.lock"
flock 9
chroot "$root" dpkg -s "$@" >/dev/null 2>&1 && exit 0

apt() {
  unshare --mount --propagation private -- bash -euc '
    cd "$0"; mount -t proc proc proc; mount --rbind /dev dev; exec chroot . apt-get "$@"' "$root" "$@"
}
steps 2
step "read the package lists" apt update
step "install $*" apt install -y --no-install-recommends "$@"
