#!/bin/sh
# Executes docs/write-a-policy.md block by block: blocks with a file name after their language are written to that file,
# `sh` blocks are run, and the resulting table must have the rows of the page's table. HOME is a new folder.
# usage: page.sh PAGE BUILD SCRATCH
set -eu
page=$1 build=$2 scratch=$3

rm -rf "$scratch"
mkdir -p "$scratch/clone"
ln -s "$build" "$scratch/clone/build"
awk '
  !inside && /^```/ {
    inside = 1
    file = $2
    shown = file != "" || $0 == "```sh"
    if (file != "") print "cat > " file " <<\\END_OF_FILE"
    next
  }
  inside && /^```$/ {
    if (file != "") print "END_OF_FILE"
    inside = 0
    next
  }
  inside && shown
' "$page" >"$scratch/steps.sh"
awk '/^```text$/ { inside = 1; next } /^```/ { inside = 0 } inside { print $1 }' "$page" >"$scratch/rows"

cd "$scratch/clone"
HOME=$scratch sh -eu "$scratch/steps.sh" >"$scratch/log" 2>&1 || {
  status=$?
  cat "$scratch/log"
  exit "$status"
}
awk '$1 == "method" { table = 1 } table' "$scratch/log" >"$scratch/table"
cat "$scratch/table"

fail() {
  echo "page.sh: $1" >&2
  exit 1
}
[ "$(wc -l <"$scratch/rows")" -ge 4 ] || fail "the page has no table"
awk '{ print $1 }' "$scratch/table" | diff "$scratch/rows" - || fail "the table's rows differ from the page's"
# The page's policy must be better than random.
awk '{ perplexity[$1] = $2; evicted[$1] = $3 }
  END {
    exit !(perplexity["full"] > 1 && perplexity["random:policy=fading-max"] > 1 && evicted["full"] == 0 &&
           evicted["random:policy=fading-max"] > 1000 && perplexity["random:policy=fading-max"] < perplexity["random"])
  }' "$scratch/table" || fail "fading-max does not beat random"
rm -rf "$scratch"
