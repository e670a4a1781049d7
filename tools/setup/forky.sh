#!/usr/bin/env bash
# Creates the forky root: a Debian forky system in a folder, with a compiler and all dependencies (about a minute).
# usage: forky.sh ROOT        does nothing if ROOT exists; needs root rights, apt, and a mirror with forky
# An interrupted run leaves only ROOT.part, which the next run removes; nothing stays mounted.
# shellcheck disable=SC2016
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
PROGRESS_LOG=${PALIMPSEST_SETUP_LOG:?the caller names the log}
. "$here/progress.sh"
. "$here/mirror.sh"

root=${1:?usage: forky.sh ROOT}
part=$root.part
mapfile -t packages < <(sed 's/#.*//' "$here/packages.list" | awk 'NF')
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

install_debootstrap() {
  command -v debootstrap >/dev/null && [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] && return
  apt-get update && apt-get install -y --no-install-recommends debootstrap debian-archive-keyring
}

# Mounts of debootstrap and apt end with their private namespace.
private() { unshare --mount --propagation private -- bash -euc "$@"; }

unpack() {
  local proxy include=()
  [[ $mirror == https:* ]] && include=(--include=ca-certificates)
  proxy=$(apt-config dump Acquire::http::Proxy | sed -n 's/.*"\(.*\)";/\1/p')
  export http_proxy=${http_proxy:-$proxy}
  [ -n "$http_proxy" ] || unset http_proxy
  # Older debootstraps have no script for forky; that of sid works.
  private 'debootstrap --variant=minbase "$@"' unpack "${include[@]}" \
    forky "$part" "$mirror" /usr/share/debootstrap/scripts/sid
}

configure() {
  apt_acquire_settings >"$part/etc/apt/apt.conf.d/50host"
  # The root is created once, unattended: no questions, no package cache, no fsync.
  printf '%s\n' 'APT::Install-Recommends "false";' 'Dir::Cache::pkgcache "";' 'Dir::Cache::srcpkgcache "";' \
    >"$part/etc/apt/apt.conf.d/51palimpsest"
  echo force-unsafe-io >"$part/etc/dpkg/dpkg.cfg.d/palimpsest"
  printf '%s\n' 'path-exclude=/usr/share/doc/*' 'path-exclude=/usr/share/man/*' 'path-exclude=/usr/share/locale/*' \
    >>"$part/etc/dpkg/dpkg.cfg.d/palimpsest"
  cp -L /etc/resolv.conf "$part/etc/resolv.conf" 2>/dev/null || true
  if [ -d "$part/etc/ssl/certs" ] && [ -e /etc/ssl/certs/ca-certificates.crt ]; then
    cp -L /etc/ssl/certs/ca-certificates.crt "$part/etc/ssl/certs/"
  fi
}

in_part() {
  private 'cd "$0"; mount -t proc proc proc; mount --rbind /dev dev; exec chroot . "$@"' "$part" "$@"
}

install() { in_part apt-get install -y --no-install-recommends "${packages[@]}"; }

# Programs started outside the root use its libraries (cmake/SystemRoot.cmake); absolute links do not resolve there.
relocate() {
  in_part bash -euc '
    lib=/usr/lib/$(gcc -dumpmachine)
    find "$lib" -maxdepth 1 -lname "/*" | while read -r link; do ln -srf "$(readlink -f "$link")" "$link"; done
    for so in "$lib"/*.so.*; do
      [ -L "$so" ] && continue
      old=$(patchelf --print-rpath "$so" 2>/dev/null) && [ -n "$old" ] || continue
      patchelf --set-rpath "\$ORIGIN:$(sed "s,$lib,\$ORIGIN,g" <<<"$old")" "$so"
    done
    apt-get clean
    rm -rf /var/lib/apt/lists/*'
  mv -T "$part" "$root"
}

exec 9>"$root.lock"
if ! flock --nonblock 9; then
  steps 1
  step "wait for another run that creates $root" flock 9
fi
[ -d "$root" ] && exit 0
for program in apt-get unshare chroot; do
  command -v "$program" >/dev/null || die "the forky root needs '$program' (Debian or Ubuntu), which is not installed."
done
unshare --mount --propagation private true 2>>"$PROGRESS_LOG" || die \
  "this machine does not allow private mounts (unshare --mount), which the forky root needs." \
  "In a container: start it with --privileged or --cap-add SYS_ADMIN, or use the Dockerfile."
say "creating a Debian forky root with all dependencies in $root (once, about a minute; log: $PROGRESS_LOG)"
rm -rf --one-file-system "$part"

steps 5
step "install debootstrap" install_debootstrap
mirror=$(forky_mirror) || die "no apt source of this machine has Debian forky." \
  "Set a mirror: PALIMPSEST_DEBIAN_MIRROR=<URL of a Debian archive>, or see the other routes in docs/install.md."
step "unpack the base system" unpack
configure
step "read the package lists" in_part apt-get update
step "install the compiler and ${#packages[@]} packages" install
step "make the libraries usable outside the root" relocate
