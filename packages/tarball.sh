#!/usr/bin/env bash
# Makes an archive of the program with all libraries that it needs, the C library and its dynamic linker too, so that it runs on
# any Linux for x86-64 (kernel 3.2 or later). Reproducible: the same commit and environment give the same bytes.
# usage: tarball.sh ARCHIVE.tar.gz
set -euo pipefail
archive=$(realpath -m "${1:?usage: tarball.sh ARCHIVE.tar.gz}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
read -r route root < <(tools/env --route)
[ "$route" = forky ] || { echo "tarball.sh: needs the route forky (tools/env --route)" >&2; exit 2; }
PALIMPSEST_CMAKE_ARGS=-DPALIMPSEST_ROOT= tools/build tarball

name=$(basename "$archive" .tar.gz)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
into=$work/$name lib=$work/$name/lib/palimpsest
mkdir -p "$into/bin" "$lib/ggml" "$into/share/palimpsest/models" "$into/share/doc/palimpsest"

# Every library of the program and of ggml's plug-ins for CPUs; the linker resolves them in the system root that built it.
libraries=$root/usr/lib/x86_64-linux-gnu
linker=$(realpath "$root/lib64/ld-linux-x86-64.so.2")
cp build-tarball/palimpsest "$lib/palimpsest"
cp "$libraries"/ggml/backends0/libggml-cpu-*.so "$lib/ggml/"
needed() { "$linker" --library-path "$libraries" --list "$1" | awk '$3 ~ /^\// { print $3 }'; }
for file in "$lib/palimpsest" "$lib"/ggml/*.so; do needed "$file"; done | sort -u | while read -r library; do
  cp -L "$library" "$lib/$(basename "$library")"
done
cp -L "$linker" "$lib/ld-linux-x86-64.so.2"
tools/env strip --strip-unneeded "$lib/palimpsest"

cat >"$into/bin/palimpsest" <<'SCRIPT'
#!/bin/sh
# Starts the program with the libraries beside it, whatever the system has.
here=$(dirname "$(readlink -f "$0")")
export PALIMPSEST_PROGRAM="$here/palimpsest"
lib=$here/../lib/palimpsest
exec "$lib/ld-linux-x86-64.so.2" --library-path "$lib" "$lib/palimpsest" "$@"
SCRIPT
chmod 755 "$into/bin/palimpsest"
cp models/*.gguf models/*.profile "$into/share/palimpsest/models/"
cp README.md LICENSE CHANGELOG.md "$into/share/doc/palimpsest/"
# The licences of the libraries, as Debian's packages have them.
for library in "$lib"/*.so* "$lib"/ggml/*.so; do
  package=$(grep -lF "/$(basename "$library")" "$root"/var/lib/dpkg/info/*.list 2>/dev/null | head -1 || true)
  package=$(basename "${package%.list}" | sed 's/:.*//')
  [ -z "$package" ] || cp -n "$root/usr/share/doc/$package/copyright" "$into/share/doc/palimpsest/$package.copyright" 2>/dev/null || true
done
mkdir -p "$(dirname "$archive")"
tar --sort=name --mtime="@$(git log -1 --format=%ct)" --owner=0 --group=0 --numeric-owner -C "$work" -c "$name" | gzip -9n >"$archive"
ls -lh "$archive" | awk '{ print $5, $9 }'
