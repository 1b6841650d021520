#!/bin/sh
# What liblrmoe.so is to the linker: it exports the functions that lrmoe.h
# declares and cmake/lrmoe.map lists, and nothing else; it is liblrmoe.so.0;
# and it pulls no BLAS, OpenMP, CUDA, NCCL or anything else but hwloc, libxml2 and the
# C library into a host process.
#
#   exports.sh SOURCE LIBRARY
#   exports.sh --self-test SOURCE LIBRARY
set -eu
export LC_ALL=C
CC=${CC:-cc}

faults=0
fault() {
  echo "exports: $*" >&2
  faults=$((faults + 1))
}

# The preprocessor takes comments away; what is left has names of functions
# only where they are declared.
declared() { # header
  $CC -E -P -x c "$1" | grep -oE '\blrmoe[A-Z][A-Za-z0-9]*\(' | tr -d '(' |
    sort -u
}

listed() { # map
  $CC -E -P -x c "$1" | tr ' ' '\n' | tr -d ';' |
    grep -E '^lrmoe[A-Z][A-Za-z0-9]*$' | sort -u
}

# Without the name of the version itself, which is absolute.
exported() { # library
  nm -D --defined-only "$1" | awk '$2 != "A" {sub(/@.*/, "", $3); print $3}' |
    sort -u
}

same() { # what-1 what-2, with their lists in $work
  for name in $(comm -23 "$work/$1" "$work/$2"); do
    fault "$name is $1 and not $2"
  done
  for name in $(comm -13 "$work/$1" "$work/$2"); do
    fault "$name is $2 and not $1"
  done
}

check_needed() { # library
  for name in $(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p'); do
    case $name in
    libhwloc.so.* | libxml2.so.* | libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | \
      librt.so.* | ld-linux*.so.* | libgcc_s.so.*) ;;
    libasan.so.* | libubsan.so.* | libtsan.so.*) ;; # instrumented builds
    *) fault "it needs $name" ;;
    esac
  done
  soname=$(readelf -d "$1" | sed -n 's/.*(SONAME).*\[\(.*\)\].*/\1/p')
  [ "$soname" = liblrmoe.so.0 ] || fault "its SONAME is \"$soname\""
}

check_all() { # header map library
  faults=0
  declared "$1" >"$work/declared"
  listed "$2" >"$work/listed"
  exported "$3" >"$work/exported"
  for list in declared listed exported; do
    [ -s "$work/$list" ] || fault "no function is $list"
  done
  same declared listed
  same listed exported
  check_needed "$3"
  [ "$faults" = 0 ]
}

must_see() { # message header map library
  if check_all "$2" "$3" "$4" 2>"$work/said"; then
    echo "self-test: not noticed: $1" >&2
    exit 1
  fi
  grep -qF -e "$1" "$work/said" || {
    echo "self-test: \"$1\" was expected, and this came:" >&2
    cat "$work/said" >&2
    exit 1
  }
}

self_test() { # header map library
  check_all "$1" "$2" "$3"
  cp "$1" "$work/more.h"
  echo 'lrmoeResult_t lrmoePlanted(int a);' >>"$work/more.h"
  must_see 'lrmoePlanted is declared and not listed' "$work/more.h" "$2" "$3"
  sed 's/lrmoeCommSplit/\/* lrmoeCommSplit *\/ lrmoeCommSplot/' "$2" \
    >"$work/other.map"
  must_see 'lrmoeCommSplit is declared and not listed' "$1" \
    "$work/other.map" "$3"
  must_see 'lrmoeCommSplot is listed and not exported' "$1" \
    "$work/other.map" "$3"

  # A library with one name too many, another SONAME, and a spare dependency.
  listed "$2" | sed 's/.*/void &(void) {}/' >"$work/lib.c"
  echo 'void gomp(void) {}' | $CC -shared -fPIC -x c - \
    -Wl,-soname,libgomp.so.1 -o "$work/libgomp.so.1"
  $CC -shared -fPIC -w "$work/lib.c" -Wl,-soname,liblrmoe.so.0 \
    -o "$work/good.so"
  check_all "$1" "$2" "$work/good.so"
  $CC -shared -fPIC -w "$work/lib.c" -Wl,-soname,liblrmoe.so.1 \
    -o "$work/soname.so"
  must_see 'its SONAME is "liblrmoe.so.1"' "$1" "$2" "$work/soname.so"
  $CC -shared -fPIC -w "$work/lib.c" -Wl,-soname,liblrmoe.so.0 \
    -Wl,--no-as-needed "$work/libgomp.so.1" -o "$work/needs.so"
  must_see 'it needs libgomp.so.1' "$1" "$2" "$work/needs.so"
  echo 'int leaked;' >>"$work/lib.c"
  $CC -shared -fPIC -w "$work/lib.c" -Wl,-soname,liblrmoe.so.0 \
    -o "$work/leaks.so"
  must_see 'leaked is exported and not listed' "$1" "$2" "$work/leaks.so"
  grep -v lrmoeSelectPackSend "$work/lib.c" >"$work/less.c"
  $CC -shared -fPIC -w "$work/less.c" -Wl,-soname,liblrmoe.so.0 \
    -o "$work/less.so"
  must_see 'lrmoeSelectPackSend is listed and not exported' "$1" "$2" \
    "$work/less.so"
  echo 'self-test: good'
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
run=check_all
if [ "$1" = --self-test ]; then
  run=self_test
  shift
fi
$run "$1/include/lrmoe.h" "$1/cmake/lrmoe.map" "$2"
