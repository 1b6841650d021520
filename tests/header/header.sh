#!/bin/sh
# Each public header alone: it compiles as C11 and as C++17 without a warning and without
# another header before it, and every struct that begins with its size
#   - has an INITIALIZER that compiles in both languages and sets size, magic
#     and version,
#   - begins with size, magic, version in that order, and
#   - has no tail padding, so that a longer struct of a later release differs
#     from a shorter one by whole fields.
# The structs are found in the header, so that a new one is checked unasked.
#
#   header.sh SOURCE
#   header.sh --self-test SOURCE
#
# Compilers: $CC and $CXX, and gcc and clang where they are installed.
set -eu
export LC_ALL=C

name='[A-Za-z_0-9]+'

# "TYPE LAST-FIELD" of every struct whose first field is `size_t size`.
versioned_structs() { # header
  grep -v '^#include "' "$1" | "${CC:-cc}" -E -P -x c - | tr '\n' ' ' |
    grep -oE 'typedef struct \{[^}]*\} *[A-Za-z_0-9]+ *;' |
    grep -E '^typedef struct \{ *size_t size;' | sed -E "
      s/^.*[ *]($name)(\[[^]]*\])?; *\} *($name) *;\$/\3 \1/"
}

# lrmoeCommConfig_t -> LRMOE_COMM_CONFIG_INITIALIZER
initializer_of() {
  echo "$1" | sed -E 's/_t$//; s/([A-Z])/_\1/g' | tr '[:lower:]' '[:upper:]' |
    sed 's/$/_INITIALIZER/'
}

write_program() { # header
  echo "#include \"$(basename "$1")\""
  echo '#include <stdio.h>'
  echo '#ifndef __cplusplus'
  echo '#define static_assert _Static_assert'
  echo '#endif'
  echo 'int main(void) {'
  echo '  int numBad = 0;'
  versioned_structs "$1" | while read -r type last; do
    cat <<END
  static_assert(offsetof($type, size) == 0, "$type: size is not first");
  static_assert(offsetof($type, magic) == sizeof(size_t),
                "$type: magic is not second");
  static_assert(offsetof($type, version) == sizeof(size_t) + 4,
                "$type: version is not third");
  static_assert(offsetof($type, $last) + sizeof((($type *)0)->$last) ==
                    sizeof($type),
                "$type: has tail padding after $last");
  {
    $type made = $(initializer_of "$type");
    if (made.size != sizeof made || made.magic != LRMOE_MAGIC ||
        made.version != LRMOE_VERSION) {
      fprintf(stderr, "$type: its INITIALIZER sets another header\n");
      numBad++;
    }
  }
END
  done
  echo '  return numBad != 0;'
  echo '}'
}

compile_and_run() { # include-folder compiler standard language
  flags="-std=$3 -Wall -Wextra -Wpedantic -Wshadow -Werror -I$1"
  # shellcheck disable=SC2086
  if ! "$2" $flags -x "$4" -fsyntax-only "$work/alone"; then
    echo "header: $(cut -d'"' -f2 "$work/alone") alone fails with $2" \
      "-std=$3" >&2
    return 1
  fi
  # shellcheck disable=SC2086
  if ! "$2" $flags -x "$4" "$work/program" -o "$work/run"; then
    echo "header: the structs fail with $2 -std=$3" >&2
    return 1
  fi
  "$work/run"
}

check_header() { # include-folder header
  echo "#include \"$2\"" >"$work/alone"
  write_program "$1/$2" >"$work/program"
  count=$(versioned_structs "$1/$2" | wc -l)
  # Each has its INITIALIZER, so the numbers must agree.
  defined=$(grep -c '^#define LRMOE_[A-Z_]*_INITIALIZER' "$1/$2")
  if [ "$count" != "$defined" ]; then
    echo "header: $count structs with a size, $defined INITIALIZERs" >&2
    return 1
  fi
  numC=0 numCxx=0
  for compiler in "${CC:-cc}" gcc clang; do
    command -v "$compiler" >/dev/null || continue
    compile_and_run "$1" "$compiler" c11 c || return 1
    numC=$((numC + 1))
  done
  for compiler in "${CXX:-c++}" g++ clang++; do
    command -v "$compiler" >/dev/null || continue
    compile_and_run "$1" "$compiler" c++17 c++ || return 1
    numCxx=$((numCxx + 1))
  done
  echo "$2: $count structs, $numC C and $numCxx C++ compilers"
}

check_all() { # include-folder
  for path in "$1"/*.h; do
    check_header "$1" "$(basename "$path")" || return 1
  done
  [ "$numCxx" != 0 ] || exit 77 # no C++ compiler: skipped
}

plant() { # sed-script message
  mkdir -p "$work/planted"
  sed -E "$1" "$good/lrmoe.h" >"$work/planted/lrmoe.h"
  if cmp -s "$good/lrmoe.h" "$work/planted/lrmoe.h"; then
    echo "self-test: nothing planted for: $2" >&2
    exit 1
  fi
  if check_all "$work/planted" >"$work/said" 2>&1; then
    echo "self-test: not noticed: $2" >&2
    exit 1
  fi
  grep -qF -e "$2" "$work/said" || {
    echo "self-test: \"$2\" was expected, and this came:" >&2
    cat "$work/said" >&2
    exit 1
  }
}

self_test() {
  good=$1
  check_all "$good"
  end='s/^\} lrmoeCommConfig_t;/'
  value='s/LRMOE_VERSION, 0 \}/LRMOE_VERSION, 0, 0 }/'
  plant "${end}  int32_t planted;\n&/; $value" \
    'lrmoeCommConfig_t: has tail padding after planted'
  plant "${end}  int64_t planted;\n&/" 'the structs fail'
  plant 's/^#define LRMOE_HANDOFF_INITIALIZER/#define LRMOE_HAND_INITIALIZER/' \
    'the structs fail'
  plant 's/^#define LRMOE_HANDOFF_INITIALIZER/#define LRMOE_HANDOFF_INITIAL/' \
    'INITIALIZERs'
  plant 's/sizeof\(lrmoeCommConfig_t\), LRMOE_MAGIC/16, LRMOE_MAGIC/' \
    'lrmoeCommConfig_t: its INITIALIZER sets another header'
  plant 's/^#include <stdint.h>/#include <stddef.h>/' \
    'lrmoe.h alone fails'
  plant "${end}  int64_t new;\n&/; $value" \
    '-std=c++17'
  plant 's/^#endif$/&\nstatic int planted(void) { return 0; }/' \
    'lrmoe.h alone fails'
  echo 'self-test: good'
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ "$1" = --self-test ]; then
  self_test "$2/include"
else
  check_all "$1/include"
fi
