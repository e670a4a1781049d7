#!/bin/sh
# Trains the scorers of a model: tools/env research/train/scorer/run.sh [MODEL.gguf [TEXTS]]
# TEXTS: a folder of *.txt like the model's training data (default: texts for the default model). Every fourth text is
# used to evaluate the scorers, not to train them.
# Needs build/example_dump_attention (tools/build release example_dump_attention).
set -eu
here=$(dirname "$0")
model=${1:-models/palimpsest-stories.gguf}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
texts=${2:-$scratch/texts}
[ $# -ge 2 ] || python3 "$here/texts.py" "$texts" --count 12
for text in "$texts"/*.txt; do
  folder=$scratch/$(basename "$text" .txt)
  mkdir -p "$folder"
  build/example_dump_attention "$model" "$text" 2047 "$folder"
done
dumps=$(find "$scratch" -name model.json -printf '%h\n' | sort -V)
# shellcheck disable=SC2046  # several arguments
python3 "$here/train.py" $(echo "$dumps" | awk 'NR % 4') --out "${model%.gguf}" --evaluate $(echo "$dumps" | awk 'NR % 4 == 0')
