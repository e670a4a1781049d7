# shellcheck shell=bash
# Sourced by checks of packages: makes $clean, a minimal Debian forky system in a folder, with the caller's apt settings. It is a
# copy of a base that is unpacked once, and is removed when the check ends.
# usage: . clean_root.sh FOLDER       $folder: FOLDER, absolute; $clean; inside COMMAND
# shellcheck disable=SC2016
caller=$(basename "$0")
folder=$(cd "${1:?usage: $caller FOLDER (of make deb)}" && pwd -P)
_here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
read -r route root < <("$_here/tools/env" --route)
[ "$route" = forky ] || { echo "$caller: needs the forky route (tools/env --route)" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "$caller: needs root rights (chroot)" >&2; exit 2; }
export PROGRESS_LOG=${PALIMPSEST_SETUP_LOG:-${root%/*}/setup.log}
. "$_here/tools/setup/progress.sh"
. "$_here/tools/setup/mirror.sh"

base=${root%/*}/clean-forky
clean=$(mktemp -d "${root%/*}/clean.XXXXXX")
chmod 755 "$clean"
trap 'rm -rf --one-file-system "$clean"' EXIT
if [ ! -d "$base" ]; then
  mirror=$(forky_mirror)
  rm -rf "$base.part"
  unshare --mount --propagation private debootstrap --variant=minbase --include=ca-certificates forky "$base.part" \
    "$mirror" /usr/share/debootstrap/scripts/sid >>"$PROGRESS_LOG" 2>&1
  apt_acquire_settings >"$base.part/etc/apt/apt.conf.d/50host"
  echo force-unsafe-io >"$base.part/etc/dpkg/dpkg.cfg.d/unsafe"
  cp -L /etc/resolv.conf "$base.part/etc/resolv.conf"
  [ ! -e /etc/ssl/certs/ca-certificates.crt ] || cp -L /etc/ssl/certs/ca-certificates.crt "$base.part/etc/ssl/certs/"
  mv "$base.part" "$base"
fi
cp -a "$base/." "$clean/"

inside() {  # COMMAND: in the clean system, with nothing of the caller's environment
  unshare --mount --pid --fork --propagation private -- bash -euc '
    cd "$0"; mount -t proc proc proc; mount --rbind /dev dev
    exec chroot . /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
      DEBIAN_FRONTEND=noninteractive bash -euo pipefail -c "$1"' "$clean" "$1"
}
