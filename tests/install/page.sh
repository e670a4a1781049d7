#!/bin/sh
# Executes docs/write-a-policy.md block by block: blocks with a file name after their language are written to that file,
# `sh` blocks are run, and the resulting table must be the page's: perplexities within 1% (they depend on the CPU's
# rounding), tokens and bytes exactly. HOME is a new folder. PALIMPSEST_UPDATE_DOCS=1 writes the table into the page.
# usage: page.sh PAGE BUILD SCRATCH
set -eu
page=$1 build=$2 scratch=$3

rm -rf "$scratch"
mkdir -p "$scratch/clone"
ln -s "$build" "$scratch/clone/build"
ln -s "$(cd "$(dirname "$page")/.." && pwd)/src" "$scratch/clone/src"
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
awk '/^```text$/ { inside = 1; next } /^```/ { inside = 0 } inside' "$page" >"$scratch/shown"

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
[ "$(wc -l <"$scratch/shown")" -ge 4 ] || fail "the page has no table"
if [ "${PALIMPSEST_UPDATE_DOCS:-}" = 1 ]; then
  awk -v table="$scratch/table" '
    /^```text$/ { print; while ((getline line < table) > 0) print line; inside = 1; next }
    /^```/ { inside = 0 }
    !inside' "$page" >"$scratch/page"
  cat "$scratch/page" >"$page"
else
  awk '
    NR == FNR { shown[FNR] = $0; count = FNR; next }
    {
      split(shown[FNR], a)
      same = $1 == a[1] && $4 == a[4] && $5 == a[5]
      if (FNR == 1 ? $0 != shown[1] : !same || $2 > a[2] * 1.01 + 0.005 || $2 < a[2] * 0.99 - 0.005) {
        print "the page has:  " shown[FNR] "\nthe table has: " $0
        wrong = 1
      }
    }
    END { exit wrong || FNR != count }' "$scratch/shown" "$scratch/table" ||
    fail "the figures differ from the page: PALIMPSEST_UPDATE_DOCS=1 tools/test release -R install.policy_page"
fi
# The page's policy must be better than random.
awk '{ perplexity[$1] = $2; evicted[$1] = $4 }
  END {
    exit !(perplexity["full"] > 1 && perplexity["random:policy=fading-max"] > 1 && evicted["full"] == 0 &&
           evicted["random:policy=fading-max"] > 1000 && perplexity["random:policy=fading-max"] < perplexity["random"])
  }' "$scratch/table" || fail "fading-max does not beat random"
rm -rf "$scratch"
