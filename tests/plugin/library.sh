#!/bin/sh
# What liblrmoe_preload.so or liblrmoe_nccl.so brings into a process: the names
# that its list says and no others; hwloc, libxml2, jansson and the C library, but
# no NCCL, BLAS or OpenMP; and a file name that nobody takes for NCCL's.
#
#   library.sh LIBRARY MAP
#   library.sh --self-test LIBRARY MAP
set -eu
export LC_ALL=C
CC=${CC:-cc}

faults=0
fault() {
  echo "library: $*" >&2
  faults=$((faults + 1))
}

check() { # library map
  faults=0
  case $(basename "$1") in *libnccl*) fault "it is called $1" ;; esac
  nm -D --defined-only "$1" | awk '$2 != "A" {print $3}' | sort -u \
    >"$work/exported"
  $CC -E -P -x c "$2" | tr -s ' ;' '\n' |
    grep -E '^(nccl|lrmoe[A-Z])' | sort -u \
    >"$work/listed"
  [ -s "$work/listed" ] || fault "no name is listed"
  cmp -s "$work/exported" "$work/listed" ||
    fault "it exports other names: $(comm -3 "$work/exported" "$work/listed" |
      tr '\n\t' '  ')"
  for name in $(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p'); do
    case $name in
    libhwloc.so.* | libxml2.so.* | libjansson.so.* | libc.so.* | libm.so.* | \
      libpthread.so.* | libdl.so.* | librt.so.* | ld-linux*.so.* | \
      libgcc_s.so.*) ;;
    libasan.so.* | libubsan.so.* | libtsan.so.*) ;; # instrumented builds
    *) fault "it needs $name" ;;
    esac
  done
  [ "$faults" = 0 ]
}

must_see() { # message library
  if check "$2" "$map" 2>"$work/said"; then
    echo "self-test: not noticed: $1" >&2
    exit 1
  fi
  grep -qF -e "$1" "$work/said" || {
    echo "self-test: \"$1\" was expected, and this came:" >&2
    cat "$work/said" >&2
    exit 1
  }
}

self_test() { # library map
  check "$1" "$2"
  map=$2
  sed 's/.*/void &(void) {}/' "$work/listed" >"$work/lib.c"
  echo 'void gomp(void) {}' | $CC -shared -fPIC -x c - \
    -Wl,-soname,libgomp.so.1 -o "$work/libgomp.so.1"
  $CC -shared -fPIC "$work/lib.c" -o "$work/good.so"
  check "$work/good.so" "$map"
  cp "$work/good.so" "$work/libnccl_good.so"
  must_see 'it is called' "$work/libnccl_good.so"
  $CC -shared -fPIC "$work/lib.c" -Wl,--no-as-needed "$work/libgomp.so.1" \
    -o "$work/needs.so"
  must_see 'it needs libgomp.so.1' "$work/needs.so"
  echo 'int leaked;' >>"$work/lib.c"
  $CC -shared -fPIC "$work/lib.c" -o "$work/leaks.so"
  must_see 'it exports other names: leaked' "$work/leaks.so"
  echo 'self-test: good'
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ "$1" = --self-test ]; then
  self_test "$2" "$3"
else
  check "$1" "$2"
fi
