#!/usr/bin/env bash
# Installs the package as a stranger would, and runs the README's Python lines and the notebook.
# usage: clean.sh venv|debian12 [WHEEL]     without WHEEL: `pip install .` in a new clone of the last commit
#   venv       a new virtual environment on this machine
#   debian12   a new minimal system of Debian 12 (chroot; root rights, debootstrap). `pip install .` builds the foundation
#              there, too, unless ~/.cache/palimpsest has it for this compiler
# shellcheck disable=SC2016
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
where=${1:?usage: clean.sh venv|debian12 [WHEEL]} wheel=${2:-}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/palimpsest
mkdir -p "$cache"
new=$(mktemp -d "$cache/clean.XXXXXX")
chmod 755 "$new"
trap 'rm -rf --one-file-system "$new"' EXIT

make_debian12() {  # into $new: a copy of a base that is unpacked once, with this machine's apt settings
  local base=$cache/clean-debian12 mirror uri
  . "$here/tools/setup/mirror.sh"
  if [ ! -d "$base" ]; then
    for uri in ${PALIMPSEST_DEBIAN_MIRROR:-$(apt_uris)}; do
      /usr/lib/apt/apt-helper download-file "$uri/dists/bookworm/InRelease" "$new/InRelease" >/dev/null 2>&1 || continue
      mirror=$uri
      break
    done
    rm -rf "$base.part"
    unshare --mount --propagation private debootstrap --variant=minbase --include=ca-certificates,python3-venv bookworm \
      "$base.part" "${mirror:?no apt source has bookworm}" >&2
    apt_acquire_settings >"$base.part/etc/apt/apt.conf.d/50host"
    cp -L /etc/resolv.conf "$base.part/etc/resolv.conf"
    cp -L /etc/ssl/certs/ca-certificates.crt "$base.part/etc/ssl/certs/"
    [ ! -e /etc/pip.conf ] || cp -L /etc/pip.conf "$base.part/etc/"
    mv "$base.part" "$base"
  fi
  rm -f "$new/InRelease"
  cp -a "$base/." "$new/"
}

case $where in
  venv)
    root='' work=$new/work
    inside() { env -u PYTHONPATH bash -euo pipefail -c "cd '$work'; $1"; }
    ;;
  debian12)
    make_debian12
    root=$new work=/work
    inside() {  # COMMAND: in the new system, with nothing of the caller's environment but pip's settings
      unshare --mount --pid --fork --propagation private -- bash -euc '
        cd "$0"; mount -t proc proc proc; mount --rbind /dev dev
        exec chroot . /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
          ${PIP_INDEX_URL:+PIP_INDEX_URL="$PIP_INDEX_URL"} ${PIP_CERT:+PIP_CERT="$PIP_CERT"} \
          PIP_ROOT_USER_ACTION=ignore bash -euo pipefail -c "cd /work; $1"' "$root" "$1"
    }
    ;;
  *) echo "clean.sh: '$where': use venv or debian12" >&2; exit 2 ;;
esac
python=${PYTHON:-python3}
mkdir -p "$root$work"

check() {  # NAME COMMAND: prints ok and the last line, or ends with the output
  local out start=$SECONDS
  if out=$(inside "$2" 2>&1); then
    printf 'ok    %-40s %4d s  %s\n' "$1" $((SECONDS - start)) "$(tail -n 1 <<<"$out" | cut -c1-100)"
  else
    printf 'FAIL  %s\n%s\n' "$1" "$out"
    exit 1
  fi
}

check "a virtual environment" "$python -m venv env && env/bin/python --version"
if [ -n "$wheel" ]; then
  cp "$wheel" "$root$work/"
  source=./$(basename "$wheel")
else
  git clone -q --no-hardlinks "$here" "$root$work/palimpsest"
  source=./palimpsest
  if [ "$where" = debian12 ]; then
    check "a compiler" 'apt-get update -qq; apt-get install -y -qq --no-install-recommends g++ python3-dev >/dev/null; c++ --version | head -n 1'
    mkdir -p "$root/root/.cache/palimpsest"
    cp -a "$cache"/foundation-??????????/ "$root/root/.cache/palimpsest/" 2>/dev/null || true
  fi
fi
check "pip install $source" "env/bin/pip install -q $source; env/bin/pip list 2>/dev/null | grep palimpsest"
sed -n '/^```python$/,/^```$/p' "$here/README.md" | grep -v '^```' >"$root$work/readme.py"
check "the README's Python lines" 'env/bin/python -X dev -W error readme.py'
check "python -m palimpsest; the command" 'env/bin/python -m palimpsest --version; env/bin/palimpsest run -n 12 --seed 1'
cp "$here/examples/policy.ipynb" "$root$work/"
check "its extra, notebook" "env/bin/pip install -q 'palimpsest[notebook]'; env/bin/pip list 2>/dev/null | grep nbclient"
check "the notebook" 'env/bin/python -c "
import nbclient, nbformat
book = nbformat.read(\"policy.ipynb\", 4)
nbclient.NotebookClient(book, timeout=900, kernel_name=\"python3\").execute()
print(len(book.cells), \"cells\")"'
check "size" 'du -sh env/lib/python3*/site-packages/palimpsest* | tr "\n" " "'
