#!/bin/sh
# Data, training, evaluation, curves and export; see README.md. Steps whose result exists are skipped.
set -eu
[ $# -eq 2 ] || { echo "usage: run.sh PROSE.tar.xz OUT        (-: OUT/data exists already)" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
prose=$1 out=$2 python=${PYTHON:-python3} preset=${PRESET:-medium} tokens=${TOKENS:-87e6}
[ -e "$out/data/prose.npy" ] || "$python" "$here/prepare.py" --prose "$prose" --out "$out/data" --tokenizer "$here/tokenizer.json"
"$python" "$here/train.py" --data "$out/data" --run "$out" --preset "$preset" --curriculum "${CURRICULUM:-long}" \
  --tokens "$tokens" --minutes "${MINUTES:-100000}" --threads "${THREADS:-2}" --workers "${WORKERS:-0}"
[ -e "$out/complete" ] || { echo "fewer than $tokens tokens so far: the same command resumes"; exit 0; }
"$python" "$here/evaluate.py" --data "$out/data" --run "$out"
"$python" "$here/curves.py" --run "$out" --out "$out/curves.svg"
"$python" "$here/export.py" --data "$out/data" --run "$out" --out "$out/model.gguf"
