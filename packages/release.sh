#!/usr/bin/env bash
# Makes all that a release has, of the last commit: out/release/*, with their SHA-256 sums.
#   source    palimpsest-VERSION.tar.gz
#   tarball   palimpsest-VERSION-linux-x86_64.tar.gz, which needs no other library; palimpsest.rb (Homebrew) and PKGBUILD (AUR)
#             install it from RELEASE_URL, where the files are published
#   deb       Debian packages (forky)
#   image     palimpsest-VERSION-image.tar, for `docker load`
#   wheel     the Python package
# usage: release.sh [source|tarball|deb|image|wheel]...      none: all
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ -z "$(git status --porcelain)" ] || echo "release.sh: uncommitted changes are not in the source archive" >&2
version=$(sed -n 's/^project(palimpsest VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
out=out/release
mkdir -p $out
[ $# -gt 0 ] || set -- source tarball deb image wheel
for part in "$@"; do
  printf '\n=== %s\n' "$part"
  case $part in
    source) git archive --format=tar --prefix="palimpsest-$version/" HEAD | gzip -9n >"$out/palimpsest-$version.tar.gz" ;;
    tarball)
      archive=$out/palimpsest-$version-linux-x86_64.tar.gz
      packages/tarball.sh "$archive"
      sum=$(sha256sum "$archive" | cut -d' ' -f1)
      for recipe in palimpsest.rb PKGBUILD; do
        sed "s/@VERSION@/$version/; s/@SHA256@/$sum/; s|@URL@|${RELEASE_URL:-https://example.org}|" "packages/recipes/$recipe" >"$out/$recipe"
      done
      ;;
    deb)
      make deb
      cp build-package/*.deb $out/
      ;;
    image)
      ls build-package/palimpsest_*.deb >/dev/null 2>&1 || make deb
      packages/container/image.sh build-package "$out/palimpsest-$version-image.tar"
      ;;
    wheel)
      make wheel
      cp dist/palimpsest-"$version"-*.whl $out/
      ;;
    *) echo "release.sh: unknown part '$part': use source, tarball, deb, image or wheel" >&2; exit 2 ;;
  esac
done
(cd $out && rm -f SHA256SUMS && sha256sum -- * >SHA256SUMS && cat SHA256SUMS)
