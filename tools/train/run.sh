#!/bin/sh
# Data, training, measures, curves and export in one go; see README.md. Each step is left out when its result is there.
set -eu
[ $# -eq 2 ] || { echo "usage: run.sh PROSE.tar.xz OUT" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
prose=$1 out=$2 python=${PYTHON:-python3}
[ -e "$out/data/prose.npy" ] || "$python" "$here/prepare.py" --prose "$prose" --out "$out/data" --tokenizer "$here/tokenizer.json"
"$python" "$here/train.py" --data "$out/data" --run "$out" --preset "${PRESET:-small}" --curriculum "${CURRICULUM:-cpu}" \
  --tokens "${TOKENS:-30e6}" --minutes "${MINUTES:-100000}"
"$python" "$here/evaluate.py" --data "$out/data" --run "$out" ${CONTEXT:+--context "$CONTEXT"}
"$python" "$here/plot.py" --run "$out" --out "$out/curves.svg"
"$python" "$here/export.py" --data "$out/data" --run "$out" --out "$out/model.gguf" ${CONTEXT:+--context "$CONTEXT"}
