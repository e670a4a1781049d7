# shellcheck shell=bash
# Progress of long steps. Sourced. `steps N` sets the number of steps; `step TITLE CMD...` runs one and prints on stderr
#   [2/6] unpacking the base system  12 s      (updated on a terminal, otherwise one line at the end)
# The command's output goes to $PROGRESS_LOG. A failure prints the end of the log and returns the command's status.

PROGRESS_LOG=${PROGRESS_LOG:-/dev/null}
progress_total=0
progress_now=0

steps() { progress_total=$1 progress_now=0; }

say() { printf 'palimpsest: %s\n' "$*" >&2; }

die() {
  printf 'palimpsest: %s\n' "$@" >&2
  exit 1
}

step() {
  local title=$1 start=$SECONDS label pid rc=0 last=0
  shift
  progress_now=$((progress_now + 1))
  label="[$progress_now/$progress_total] $title"
  # In a separate process group, so that an interrupt ends all its processes.
  set -m
  "$@" >>"$PROGRESS_LOG" 2>&1 </dev/null &
  pid=$!
  set +m
  trap 'kill -- "-$pid" 2>/dev/null || true; printf "\n" >&2; die "interrupted; it is safe to start again."' INT TERM
  while kill -0 "$pid" 2>/dev/null; do
    if [ -t 2 ]; then
      printf '\r\033[K%s  %d s' "$label" $((SECONDS - start)) >&2
    elif [ $((SECONDS - start - last)) -ge 15 ]; then  # periodic output, for logs
      last=$((SECONDS - start))
      printf '%s  %d s ...\n' "$label" "$last" >&2
    fi
    sleep 0.2
  done
  wait "$pid" || rc=$?
  trap - INT TERM
  [ -t 2 ] && printf '\r\033[K' >&2
  if [ "$rc" -eq 0 ]; then
    printf '%s  %d s\n' "$label" $((SECONDS - start)) >&2
  else
    printf '%s  FAILED after %d s; the end of %s:\n' "$label" $((SECONDS - start)) "$PROGRESS_LOG" >&2
    tail -n 30 "$PROGRESS_LOG" | sed 's/^/    /' >&2
  fi
  return "$rc"
}
