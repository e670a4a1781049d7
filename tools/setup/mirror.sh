# shellcheck shell=bash
# Finds a Debian mirror with forky in this machine's apt configuration. Sourced.

# Every URI of every apt source of this machine, in order: deb822 files, one-line files, and mirror lists.
apt_uris() {
  local etc=/etc/apt uri
  {
    cat "$etc"/sources.list.d/*.sources 2>/dev/null | sed -n 's/^URIs:[[:space:]]*//p' | tr -s ' ' '\n'
    cat "$etc"/sources.list "$etc"/sources.list.d/*.list 2>/dev/null |
      sed -n 's/^[[:space:]]*deb[[:space:]]\{1,\}\(\[[^]]*\][[:space:]]*\)\{0,1\}\([^[:space:]]*\).*/\2/p'
  } | while read -r uri; do
    case $uri in
      mirror+file:*) sed -n 's/^\([a-z]*:[^[:space:]]*\).*/\1/p' "${uri#mirror+file:}" 2>/dev/null ;;
      *) printf '%s\n' "$uri" ;;
    esac
  done | sed 's,/*$,,' | awk 'NF && !seen[$0]++'
}

# Prints the first mirror with forky. Uses apt's downloader, with its proxies and certificates; curl may be missing.
forky_mirror() {
  local uri probe
  probe=$(mktemp -d)
  for uri in ${PALIMPSEST_DEBIAN_MIRROR:-$(apt_uris)}; do
    if (cd "$probe" && timeout 60 /usr/lib/apt/apt-helper download-file "$uri/dists/forky/InRelease" "$probe/InRelease") \
      >>"$PROGRESS_LOG" 2>&1 && grep -q '^Codename: forky' "$probe/InRelease"; then
      rm -rf "$probe"
      printf '%s\n' "$uri"
      return 0
    fi
  done
  rm -rf "$probe"
  return 1
}

# The download settings of the machine's apt configuration (proxies, dates, certificates), without settings that run
# programs or fetch more than package lists.
apt_acquire_settings() {
  apt-config dump | grep '^Acquire::' |
    grep -Ev '^Acquire::(IndexTargets|Changelogs|CompressionTypes|cdrom|GzipIndexes|Languages)|ProxyAutoDetect|Proxy-Auto-Detect|""' || true
  printf 'Acquire::Languages "none";\n'
}
