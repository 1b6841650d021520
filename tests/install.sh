#!/bin/sh
# What a user gets: installs into an empty prefix, moves it, and builds the
# same small program against it with pkg-config and with find_package.
#
#   install.sh CMAKE BUILD VERSION
set -eu
cmake=$1
build=$2
version=$3
CC=${CC:-cc}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "install: $*" >&2
  exit 1
}

"$cmake" --install "$build" --prefix "$work/first" >"$work/log" ||
  fail "cmake --install"
mv "$work/first" "$work/prefix" # nothing may know where it was
prefix=$work/prefix

headers=$(cd "$prefix/include" && find . -type f | sort | tr '\n' ' ')
[ "$headers" = './lrmoe.h ./lrmoe_hint.h ' ] ||
  fail "other headers than lrmoe.h and lrmoe_hint.h: $headers"
pc=$(find "$prefix" -name lrmoe.pc)
[ -n "$pc" ] || fail "no lrmoe.pc"

cat >"$work/user.c" <<END
#include <lrmoe.h>
#include <stdio.h>

int main(void) {
  int version;
  if (lrmoeGetVersion(&version) != lrmoeSuccess) return 1;
  printf("%d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
  return version != LRMOE_VERSION;
}
END

# Every program has its man page, which names it and its options.
for program in "$prefix"/bin/*; do
  name=$(basename "$program")
  page=$prefix/share/man/man1/$name.1
  [ -s "$page" ] || fail "no man page of $name"
  grep -q '^\.SH SYNOPSIS$' "$page" || fail "$page has no synopsis"
  grep -q '^\.B \\-h, \\-\\-help$' "$page" || fail "$page has no --help"
done

# ---- pkg-config ----
PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH
[ "$(pkg-config --modversion lrmoe)" = "$version" ] ||
  fail "pkg-config says version $(pkg-config --modversion lrmoe)"
libdir=$(pkg-config --variable=libdir lrmoe)
# shellcheck disable=SC2046
$CC -std=c11 "$work/user.c" $(pkg-config --cflags --libs lrmoe) \
  -o "$work/by_pc"
said=$(LD_LIBRARY_PATH=$libdir "$work/by_pc")
[ "$said" = "$version" ] || fail "the pkg-config build says $said"

# ---- find_package ----
mkdir "$work/user"
cp "$work/user.c" "$work/user/"
cat >"$work/user/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.20)
project(user LANGUAGES C)
find_package(lrmoe $version REQUIRED)
add_executable(user user.c)
target_link_libraries(user PRIVATE lrmoe::lrmoe)
END
configure() { # build-folder
  "$cmake" -S "$work/user" -B "$1" -DCMAKE_C_COMPILER="$CC" \
    -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1
}
configure "$work/user/build" || {
  cat "$work/log" >&2
  fail "find_package(lrmoe)"
}
"$cmake" --build "$work/user/build" >"$work/log" 2>&1 || {
  cat "$work/log" >&2
  fail "the find_package build"
}
said=$("$work/user/build/user")
[ "$said" = "$version" ] || fail "the find_package build says $said"
# Another minor release is another interface, until 1.0.
sed -i 's/find_package(lrmoe [0-9.]*/find_package(lrmoe 0.99/' \
  "$work/user/CMakeLists.txt"
if configure "$work/user/build2"; then
  fail "find_package(lrmoe 0.99) takes $version"
fi

# ---- plugins, and the stand-in for NCCL apart ----
for name in liblrmoe_preload.so liblrmoe_nccl.so libnccl-env-lrmoe.so \
  libnccl-profiler-lrmoe.so; do
  [ -e "$libdir/$name" ] || fail "no $name"
done
[ -z "$(find "$prefix" -name 'libnccl.so*')" ] ||
  fail "a stand-in for NCCL where a program finds it"
"$cmake" --install "$build" --prefix "$work/apart" --component standin \
  >"$work/log" || fail "cmake --install --component standin"
[ -n "$(find "$work/apart" -path '*/lrmoe/standin/libnccl.so.2')" ] ||
  fail "no stand-in for NCCL"
[ -z "$(find "$work/apart" ! -type d ! -name 'libnccl.so*')" ] ||
  fail "more than the stand-in: $(find "$work/apart" ! -type d)"

# ---- programs ----
count=0
for program in "$prefix"/bin/*; do
  said=$("$program" --version) || fail "$program --version"
  [ "$said" = "$(basename "$program") $version" ] ||
    fail "$program --version says $said"
  "$program" --help >/dev/null || fail "$program --help"
  count=$((count + 1))
done
[ "$count" -gt 0 ] || fail "no program was installed"
echo "install: $count programs"
