#!/usr/bin/env bash
# Checks and measures the program on a GPU, on a machine with nothing but CUDA's libraries and Python. Resumable: a part
# whose results are in OUT is not run again.
#   bench/gpu/run.sh BUNDLE OUT [SECONDS [PART...]]     BUNDLE: of bench/gpu/pack.sh; the parts: measure.py --help
set -euo pipefail
bundle=$(realpath "${1:?usage: bench/gpu/run.sh BUNDLE OUT [SECONDS [PART...]]}") out=$(realpath "${2:?no OUT}")
seconds=${3:-500}
shift $(($# < 3 ? $# : 3))
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
[ -e /gpu/paths ] || python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall("/", filter="fully_trusted")' "$bundle"
. /gpu/paths
# Tests look for their files where they were compiled.
[ -e "$source" ] || { mkdir -p "$(dirname "$source")" && ln -s "$here/../.." "$source"; }
# llama.cpp's programs look for ggml's plug-ins where Debian has them.
[ -e /usr/lib/x86_64-linux-gnu/ggml/backends0 ] ||
  { mkdir -p /usr/lib/x86_64-linux-gnu/ggml && ln -s "$root/usr/lib/x86_64-linux-gnu/ggml/backends0" /usr/lib/x86_64-linux-gnu/ggml/; }
cuda=
for file in libcuda.so.1 libcudart.so.13 libcublas.so.13 libcublasLt.so.13; do
  found=$(ldconfig -p | awk -v file="$file" '$1 == file && !n++ { print $NF }' || true)
  [ -n "$found" ] || found=$(find /usr /opt -name "$file" 2>/dev/null | sed -n 1p || true)
  [ -n "$found" ] || echo "run.sh: no $file" >&2
  cuda=$cuda:$(dirname "$found")
done
# Not for Python itself: it has the C library of the system.
export GPU_LIBRARIES=$root/usr/lib/x86_64-linux-gnu:$root/usr/lib/x86_64-linux-gnu/llama$cuda GPU_ROOT=$root
exec python3 "$here/measure.py" --out "$out" --seconds "$seconds" "$@"
