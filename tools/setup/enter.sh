#!/usr/bin/env bash
# Runs a command inside the forky root, in the same folder, with the caller's files at the same paths.
# usage: enter.sh ROOT CMD ARGS...
# The mounts are private to the command and end with it. Without root rights, mounting uses sudo; the command runs as the
# caller.
# shellcheck disable=SC2016
set -euo pipefail
root=${1:?usage: enter.sh ROOT CMD ARGS...}
shift

as_root=()
[ "$EUID" = 0 ] || as_root=(sudo --preserve-env --)

exec "${as_root[@]}" unshare --mount --propagation private -- bash -euc '
  root=$1 here=$2 user=$3
  shift 3
  mount -t proc proc "$root/proc"
  mount -t sysfs sys "$root/sys" 2>/dev/null || true
  mount --rbind /dev "$root/dev"
  # Host folders that are not part of a system (homes, /tmp, other top-level folders) are mounted at their own paths.
  shopt -s nullglob dotglob
  for top in /*; do
    case $top in
      /bin|/sbin|/lib*|/usr|/etc|/var|/proc|/sys|/dev|/run|/boot|/lost+found) continue ;;
      /mnt|/media|/opt|/srv) inside=("$top"/*); [ ${#inside[@]} -gt 0 ] || continue ;;  # each mount takes 2 ms
    esac
    [ -d "$top" ] && [ ! -L "$top" ] || continue
    [ -d "$root$top" ] || mkdir -p "$root$top"
    mount --rbind "$top" "$root$top"
  done
  # A clone or a cache inside a system folder is mounted separately.
  for path in "$here" "${root%/*}"; do
    [ -e "$root$path/." ] && [ "$root$path" -ef "$path" ] && continue
    [ -d "$root$path" ] || mkdir -p "$root$path"
    mount --bind "$path" "$root$path"
  done
  cmp -s /etc/resolv.conf "$root/etc/resolv.conf" || cp -L /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
  cd "$root"
  exec chroot --userspec="$user" . /usr/bin/env -u LD_LIBRARY_PATH PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin \
    LC_ALL=C.UTF-8 bash -c "cd \"\$0\" && exec \"\$@\"" "$here" "$@"
' enter "$root" "$(pwd -P)" "$UID:${GROUPS[0]}" "$@"
