#!/usr/bin/env bash
# Runs the archive for Linux in clean roots: Debian 12 and 11, and one with nothing but a static shell. Needs root rights (chroot) and
# debootstrap; a root that cannot be made is named.
# usage: check_tarball.sh ARCHIVE.tar.gz
set -euo pipefail
archive=$(realpath "${1:?usage: check_tarball.sh ARCHIVE.tar.gz}")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
[ "$(id -u)" = 0 ] || { echo "check_tarball.sh: needs root rights (chroot)" >&2; exit 2; }
read -r _ root < <("$here/tools/env" --route)
export PROGRESS_LOG=${root%/*}/setup.log
. "$here/tools/setup/progress.sh"
. "$here/tools/setup/mirror.sh"
work=$(mktemp -d "${root%/*}/tarball.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
failed=0

try() {  # NAME: the archive is unpacked in $work/NAME and run
  local clean=$work/$1
  mkdir -p "$clean"/{opt,proc,dev,tmp}
  tar -xzf "$archive" -C "$clean/opt"
  # shellcheck disable=SC2016
  if unshare --mount --pid --fork --propagation private -- bash -euc '
    cd "$0"; mount -t proc proc proc; mount --rbind /dev dev
    run() { chroot . /bin/sh -c "exec /opt/palimpsest-*/bin/palimpsest \"\$@\"" sh "$@"; }
    run --version
    run info --devices | head -2
    run run --temp 0 --seed 1 -n 12 --ignore-eos -p "Once upon a time"' "$clean" >"$work/$1.log" 2>&1
  then
    echo "$1: $(grep -m1 '^palimpsest [0-9]' "$work/$1.log"), $(tail -1 "$work/$1.log" | cut -c1-60)"
  else
    echo "$1: failed"; cat "$work/$1.log"; failed=1
  fi
}

for suite in bookworm bullseye; do
  if debootstrap --variant=minbase $suite "$work/$suite" "${PALIMPSEST_DEBIAN_MIRROR:-$(forky_mirror)}" >>"$PROGRESS_LOG" 2>&1; then
    try $suite
  else
    echo "$suite: not tried: no root could be made of it"
  fi
done
if busybox=$(command -v busybox) && "$busybox" --list >/dev/null; then
  mkdir -p "$work/shell/bin"
  cp "$busybox" "$work/shell/bin/busybox"
  for name in sh dirname readlink; do ln -s busybox "$work/shell/bin/$name"; done
  try shell
else
  echo "shell: not tried: needs busybox-static"
fi
exit $failed
