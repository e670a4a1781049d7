#!/usr/bin/env bash
# Creates what a cross build for arm64 needs: a cross compiler and qemu in the forky root, and a system root with arm64
# libraries (cmake/arm64.cmake). About a minute.
# usage: arm64.sh ROOT SYSROOT        does nothing if SYSROOT exists
# Packages are unpacked, not installed: no program of them runs. An interrupted run leaves only SYSROOT.part.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
export PALIMPSEST_SETUP_LOG=${PALIMPSEST_SETUP_LOG:-${2:?usage: arm64.sh ROOT SYSROOT}.log}
PROGRESS_LOG=$PALIMPSEST_SETUP_LOG
. "$here/progress.sh"
root=${1:?usage: arm64.sh ROOT SYSROOT}
sysroot=${2:?usage: arm64.sh ROOT SYSROOT}
part=$sysroot.part
[ -d "$sysroot" ] && exit 0

# The libraries of packages.list, for arm64.
mapfile -t libraries < <(sed 's/#.*//' "$here/packages.list" | grep -e '-dev$' | grep -v benchmark)

download() {
  "$here/enter.sh" "$root" bash -euc '
    part=$1; shift
    apt-get update
    apt-get install -y --download-only --no-install-recommends base-files libc6-dev libgomp1 libstdc++6 "$@"
    cd "$part"
    dpkg-deb -x apt/cache/archives/base-files_*.deb system
    for deb in apt/cache/archives/*.deb; do dpkg-deb -x "$deb" system; done' download "$part" "${libraries[@]}"
}

# Absolute links would lead out of the system root.
relocate() {
  find "$part/system/usr/lib" -lname '/*' | while read -r link; do
    ln -srf "$part/system$(readlink "$link")" "$link"
  done
}

common() { CMAKE_TOOLCHAIN_FILE=$here/../../cmake/arm64.cmake PALIMPSEST_SYSROOT=$part/system \
  "$here/llama-common/make.sh" "$part/system/opt/llama-common" "$root"; }

say "creating an arm64 system root in $sysroot (once, about a minute; log: $PROGRESS_LOG)"
rm -rf --one-file-system "$part"
mkdir -p "$part"/{system/opt,apt/state/lists/partial,apt/cache/archives/partial}
touch "$part/apt/status"
cat >"$part/apt.conf" <<END
APT::Architecture "arm64";
#clear APT::Architectures;
APT::Architectures { "arm64"; };
APT::Sandbox::User "root";
Dir::State "$part/apt/state";
Dir::State::status "$part/apt/status";
Dir::Cache "$part/apt/cache";
END
steps 4
step "install the cross compiler and qemu" "$here/add.sh" "$root" g++-aarch64-linux-gnu qemu-user
export APT_CONFIG=$part/apt.conf
step "unpack ${#libraries[@]} libraries" download
unset APT_CONFIG
step "make links relative" relocate
step "compile llama.cpp's chat library" common
mv -T "$part/system" "$sysroot"
rm -rf --one-file-system "$part"
