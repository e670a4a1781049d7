#!/usr/bin/env bash
# Packs what bench/gpu/run.sh needs on a machine with a GPU and nothing else: the program and two test programs, the
# libraries of the build's root at the paths where they look for them, ggml's CUDA plug-in, llama.cpp's benches of the
# same root.
#   bench/gpu/pack.sh PLUGIN     PLUGIN: libggml-cuda.so of tools/cuda-plugin; writes out/gpu/bundle.tar.xz
set -euo pipefail
plugin=$(realpath "${1:?usage: bench/gpu/pack.sh PLUGIN}")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
read -r route root < <(tools/env --route)
[ "$route" = forky ] || { echo "pack.sh: needs the route forky (tools/env --route)" >&2; exit 2; }
tools/env --add llama.cpp-tools-extra
tools/build release palimpsest_app test_graph test_exactness

lib=$root/usr/lib/x86_64-linux-gnu
linker=$(realpath "$root/lib64/ld-linux-x86-64.so.2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
put() { mkdir -p "$work$(dirname "$1")" && cp -L "$1" "$work$1"; }  # at the same path
programs=(build/palimpsest build/test_graph build/test_exactness)
benches=("$root"/usr/bin/llama-{bench,batched-bench} "$lib"/llama/libllama-{bench,batched-bench}-impl.so)
for file in "${programs[@]}" "${benches[@]}" "$lib"/ggml/backends0/libggml-cpu-{haswell,icelake,sapphirerapids,skylakex,zen4}.so; do
  "$linker" --library-path "$lib:$lib/llama" --list "$file" | awk '$3 ~ /^\// { print $3 }'
done | sort -u | while read -r each; do put "$each"; done
mkdir -p "$work$root/lib64" && cp -L "$linker" "$work$root/lib64/ld-linux-x86-64.so.2"
for file in "${benches[@]}" "$lib"/ggml/backends0/libggml-cpu-{haswell,icelake,sapphirerapids,skylakex,zen4}.so; do put "$file"; done
mkdir -p "$work/gpu"
cp "${programs[@]}" "$plugin" "$work/gpu/"
tools/env strip --strip-unneeded "$work"/gpu/{palimpsest,test_graph,test_exactness,libggml-cuda.so}
printf 'root=%s\nsource=%s\ncommit=%s\n' "$root" "$PWD" "$(git rev-parse --short HEAD)" >"$work/gpu/paths"
mkdir -p out/gpu
tar --owner=0 --group=0 -C "$work" -c . | xz -T0 -6 >out/gpu/bundle.tar.xz
ls -lh out/gpu/bundle.tar.xz | awk '{ print $5, $9 }'
