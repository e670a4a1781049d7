#!/usr/bin/env bash
# Installs the Debian packages in a clean forky system, uses them as a stranger would, upgrades and removes them.
# usage: check_deb.sh FOLDER      FOLDER has palimpsest_*.deb and libpalimpsest-dev_*.deb (make deb); needs root rights
# shellcheck disable=SC2016
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
. "$here/packages/clean_root.sh" "$@"
mkdir -p "$clean/deb"
cp "$folder"/*.deb "$clean/deb/"

check() {  # NAME COMMAND: prints ok or ends with the output
  local out start=$SECONDS
  if out=$(inside "$2" 2>&1); then
    printf 'ok    %-52s %3d s  %s\n' "$1" $((SECONDS - start)) "$(tail -n 1 <<<"$out" | cut -c1-100)"
  else
    printf 'FAIL  %s\n%s\n' "$1" "$out"
    exit 1
  fi
}

check "apt install ./palimpsest_*.deb" 'apt-get update -qq; apt-get install -y -qq --no-install-recommends /deb/palimpsest_*.deb'
check "palimpsest --version" 'palimpsest --version'
check "palimpsest run: 20 tokens of the default model" \
  'palimpsest run -n 20 --seed 1 --json | grep -o "\"tokens\": 20"'
check "the service's command, as its user" '
  . /etc/palimpsest/serve.conf
  mkdir -p /var/lib/palimpsest; chown nobody /var/lib/palimpsest
  setpriv --reuid nobody --clear-groups --no-new-privs palimpsest serve --session-path /var/lib/palimpsest $PALIMPSEST_ARGS >/tmp/url 2>/tmp/log &
  for i in $(seq 100); do grep -q http /tmp/url && break; sleep 0.1; done
  ask() { exec 3<>/dev/tcp/127.0.0.1/8080; printf "$1" >&3; timeout 20 cat <&3; }
  body="{\"prompt\": \"Once\", \"max_tokens\": 5, \"ignore_eos\": true, \"session\": {\"save\": \"kept\"}}"
  ask "POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: ${#body}\r\n\r\n$body" | grep -o "\"completion_tokens\":5"
  kill %1; wait %1 || true; ls /var/lib/palimpsest; ls /var/lib/palimpsest | grep -q .'
check "manual pages, completions, the unit" '
  for f in man1/palimpsest.1.gz man1/palimpsest-serve.1.gz; do test -s /usr/share/man/$f; done
  apt-get install -y -qq --no-install-recommends man-db mandoc bash-completion systemd >/dev/null
  for page in /usr/share/man/man1/palimpsest*.gz; do zcat "$page" | mandoc -T lint -W error; done
  MANWIDTH=80 man palimpsest-serve | grep -q -- --cache-memory
  systemd-analyze verify /usr/lib/systemd/system/palimpsest.service
  systemd-analyze security --offline=yes --threshold=20 /usr/lib/systemd/system/palimpsest.service | tail -n 1'
check "completion of --method in bash" '
  . /usr/share/bash-completion/bash_completion; . /usr/share/bash-completion/completions/palimpsest
  COMP_LINE="palimpsest run --method stre" COMP_POINT=28 COMP_WORDS=(palimpsest run --method stre) COMP_CWORD=3
  _palimpsest; echo "${COMPREPLY[*]}"; [ "${COMPREPLY[*]}" = streaming ]'
check "apt install ./libpalimpsest-dev_*.deb: a program" '
  apt-get install -y -qq --no-install-recommends /deb/libpalimpsest-dev_*.deb cmake g++ make >/dev/null
  mkdir -p /tmp/user; cd /tmp/user
  printf "%s\n" "cmake_minimum_required(VERSION 3.25)" "project(user CXX)" "find_package(palimpsest REQUIRED)" \
    "add_executable(user user.cpp)" "target_link_libraries(user palimpsest::palimpsest)" >CMakeLists.txt
  printf "%s\n" "#include <cstdio>" "#include \"palimpsest/core/version.h\"" \
    "int main() { std::puts(palimpsest::version()); }" >user.cpp
  cmake -S . -B build >/dev/null && cmake --build build >/dev/null && build/user'
# The project has no mail address, and its change log is the project's, not Debian's.
check "lintian: no errors" '
  apt-get install -y -qq --no-install-recommends lintian >/dev/null
  lintian --fail-on error --suppress-tags bogus-mail-host,debian-changelog-file-missing \
    --allow-root /deb/*.deb'
check "configuration survives an upgrade, sessions a removal" '
  echo "# mine" >>/etc/palimpsest/serve.conf
  apt-get install -y -qq --reinstall -o Dpkg::Options::=--force-confold /deb/palimpsest_*.deb
  grep -q "# mine" /etc/palimpsest/serve.conf
  apt-get remove -y -qq palimpsest; test ! -e /usr/bin/palimpsest; ls /var/lib/palimpsest; ls /var/lib/palimpsest | grep -q .'
ls -l "$folder"/*.deb | awk '{printf "%8.2f MiB  %s\n", $5 / 1048576, $9}'
