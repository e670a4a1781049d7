#!/usr/bin/env bash
# Makes the forky root: a Debian forky system in a folder, with the compiler and every dependency (about a minute).
# usage: forky.sh ROOT        does nothing if ROOT is there; needs root rights, apt, and a mirror that has forky
# An interrupted run leaves only ROOT.part, which the next one clears; nothing stays mounted.
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

# Mounts made for debootstrap and apt vanish with their private namespace, however it ends.
private() { unshare --mount --propagation private -- bash -euc "$@"; }

unpack() {
  local proxy include=()
  [[ $mirror == https:* ]] && include=(--include=ca-certificates)
  proxy=$(apt-config dump Acquire::http::Proxy | sed -n 's/.*"\(.*\)";/\1/p')
  export http_proxy=${http_proxy:-$proxy}
  [ -n "$http_proxy" ] || unset http_proxy
  # Scripts of older debootstraps do not know the name; every Debian of these years unpacks as sid does.
  private 'debootstrap --variant=minbase "$@"' unpack "${include[@]}" \
    forky "$part" "$mirror" /usr/share/debootstrap/scripts/sid
}

configure() {
  apt_acquire_settings >"$part/etc/apt/apt.conf.d/50host"
  # A root is made once and entered from a build: nothing is to be asked, cached, or synchronised to disk.
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

# The root's libraries also serve programs started outside (cmake/SystemRoot.cmake), where absolute paths lead nowhere.
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
  step "wait for another run that is making $root" flock 9
fi
[ -d "$root" ] && exit 0
for program in apt-get unshare chroot; do
  command -v "$program" >/dev/null || die "the forky root needs '$program' (a Debian or Ubuntu system), which is missing here."
done
unshare --mount --propagation private true 2>>"$PROGRESS_LOG" || die \
  "this machine does not allow private mounts (unshare --mount), which the forky root needs." \
  "In a container: start it with --privileged or --cap-add SYS_ADMIN, or use the Dockerfile here."
say "making a Debian forky root with all dependencies in $root (once, about a minute; log: $PROGRESS_LOG)"
rm -rf --one-file-system "$part"

steps 5
step "debootstrap on this machine" install_debootstrap
mirror=$(forky_mirror) || die "no apt source of this machine has Debian forky." \
  "Name a mirror: PALIMPSEST_DEBIAN_MIRROR=<URL of a Debian archive>, or see the other routes in README.md."
step "unpack the base system" unpack
configure
step "read the package lists" in_part apt-get update
step "install the compiler and ${#packages[@]} packages" install
step "make the libraries usable from outside" relocate
