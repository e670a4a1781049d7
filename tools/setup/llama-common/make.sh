#!/usr/bin/env bash
# Builds llama.cpp's chat library (CMakeLists.txt here) from a pinned source package.
# usage: make.sh PREFIX [ROOT]     ROOT: the forky root to build in; does nothing if PREFIX exists
# An interrupted run leaves only PREFIX.part, which the next run removes.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
PROGRESS_LOG=${PALIMPSEST_SETUP_LOG:?the caller names the log}
. "$here/../progress.sh"
prefix=${1:?usage: make.sh PREFIX [ROOT]}
root=${2:-}
part=$prefix.part
read -r package version checksum < <(sed 's/#.*//' "$here/source.list" | awk 'NF')

inside() { if [ -n "$root" ]; then "$here/../enter.sh" "$root" "$@"; else "$@"; fi; }

has_pip() { python3 -m pip --version >/dev/null 2>&1; }

# pip of this machine, with its settings; else, on the forky route, pip of the root.
install_pip() {
  has_pip && return
  [ -n "$root" ] || { echo "python3 has no pip: install it (Debian: python3-pip)" && return 1; }
  if [ "$(id -u)" = 0 ]; then "$here/../add.sh" "$root" python3-pip; else
    sudo --preserve-env -- "$here/../add.sh" "$root" python3-pip; fi
}

# pip verifies the checksum before it looks into the package.
download() {
  local run=(env)
  has_pip || run=(inside)
  echo "$package==$version --hash=sha256:$checksum" >"$part/requirements"
  "${run[@]}" python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary "$package" \
    --dest "$part" --requirement "$part/requirements"
  mkdir "$part/source"
  tar -xzf "$part/$package-$version.tar.gz" -C "$part/source" --strip-components=3 \
    "$package-$version/thirdparty/llama.cpp/"{LICENSE,common,vendor/nlohmann,models/templates}
}

build() {
  inside cmake -S "$here" -B "$part/build" -G Ninja -DCMAKE_BUILD_TYPE=None -DLLAMA_SOURCE="$part/source" &&
    inside cmake --build "$part/build" &&
    inside cmake --install "$part/build" --prefix "$part/prefix"
}

if command -v flock >/dev/null; then
  exec 9>"$prefix.lock"
  if ! flock --nonblock 9; then
    steps 1
    step "wait for another run that builds $prefix" flock 9
  fi
fi
[ -d "$prefix" ] && exit 0
say "building llama.cpp's chat library in $prefix (once, below a minute; log: $PROGRESS_LOG)"
rm -rf "$part"
mkdir -p "$part"
steps 3
step "find pip" install_pip
step "download $package $version from PyPI" download
step "compile the chat library" build
mv "$part/prefix" "$prefix"
rm -rf "$part"
