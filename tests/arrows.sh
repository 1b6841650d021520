#!/bin/sh
# The arrows between the folders (see the tree in README.md):
#
#   include <- base <- topo <- planner        all of these
#              base <- kernels                <- collectives <- plugin
#   tools/ and perf/ see lrmoe.h and tools/common; examples/ lrmoe.h only
#
# They are checked in the sources, by their #include lines, and in the objects
# of a build, by the symbols that these need.  Also: the planner needs nothing
# but memory functions from outside and has no floating point, the environment
# is read in base, topo and plugin only, and no object needs CUDA, NCCL, BLAS or
# OpenMP.
#
#   arrows.sh SOURCE LISTS
#   arrows.sh --self-test SOURCE LISTS
#
# LISTS is a folder with one FOLDER.objects each, the paths of its objects.
set -eu
export LC_ALL=C

# What each folder may use, besides itself and lrmoe.h.
allowed() {
  case $1 in
  include | base | examples) echo ;;
  topo | kernels) echo base ;;
  planner) echo base topo ;;
  collectives) echo base topo planner kernels ;;
  plugin) echo base topo planner kernels collectives ;;
  tools) echo ;;
  perf) echo tools/common ;;
  esac
}

library='base topo planner kernels collectives plugin'
folders="include $library tools perf examples"

faults=0
fault() {
  echo "arrows: $*" >&2
  faults=$((faults + 1))
}

# ---- Sources -----------------------------------------------------------------

may_include() { # header, with the folders that may be seen in $places
  case $1 in
  lrmoe.h | lrmoe_hint.h) return 0 ;;
  lrmoe_device.h) # of nvcc or of the emulator: the include path says
    [ "${places%% *}" = kernels ]
    return
    ;;
  *..* | /*) return 1 ;;
  esac
  for place in $places; do
    case $1 in "$place"/*) return 0 ;; esac
  done
  return 1
}

check_includes() { # folder
  places="$1 $(allowed "$1")"
  # "file header" lines
  find "$source/$1" '(' -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' ')' \
    -exec grep -HE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' {} + |
    sed 's/:[^"]*"\([^"]*\)".*/ \1/' >"$work/includes" || true
  while read -r file header; do
    may_include "$header" || fault "${file#"$source"/} includes \"$header\""
  done <"$work/includes"
}

check_planner_source() {
  if grep -rnwE --include='*.[ch]' 'float|double' "$source"/planner >"$work/found"; then
    fault "the planner has floating point: $(head -n 1 "$work/found")"
  fi
}

# ---- Objects -----------------------------------------------------------------

# "symbol" lines of one kind for all objects of a folder.
symbols() { # folder nm-option
  tr '\n' '\0' <"$lists/$1.objects" | xargs -0 -r nm -g "$2" |
    awk 'NF >= 2 && !/:$/ {print $NF}' | sort -u
}

# Undefined symbols of a folder that nothing of the same folder defines.
needs() {
  comm -23 "$work/$1.undefined" "$work/$1.defined"
}

# Instrumented builds refer to their run-time library.
without_sanitizers() {
  grep -vE '^__(asan|ubsan|tsan|sanitizer|sancov|gcov|stack_chk)_|^_GLOBAL_' ||
    true
}

check_symbols() { # folder
  for other in $library; do
    [ "$other" = "$1" ] && continue
    case " $(allowed "$1") " in *" $other "*) continue ;; esac
    for symbol in $(needs "$1" | comm -12 - "$work/$other.defined"); do
      fault "$1 calls $symbol of $other"
    done
  done
  for symbol in $(needs "$1" | grep -E \
    '^(nccl|pnccl|cuda|cu[A-Z]|cblas_|dgemm|sgemm|dnnl_|omp_|GOMP_|__kmpc)'); do
    fault "$1 calls $symbol, which liblrmoe.so must not need"
  done
  case $1 in base | topo | plugin) return ;; esac # NCCL asks a plugin for it
  for symbol in $(needs "$1" | grep -xE '(secure_)?getenv|environ'); do
    fault "$1 uses $symbol: parameters are read in base"
  done
}

# Division of 128-bit integers is a call, of the compiler's own library.
check_planner_symbols() {
  for symbol in $(needs planner | without_sanitizers | grep -vE \
    '^lrmoe|^_*(memcpy|memset|memmove|memcmp|bcmp)(_chk)?$|^__u?divti3$'); do
    fault "the planner calls $symbol: it is to be a pure function"
  done
}

# ---- All ---------------------------------------------------------------------

check_sources() { # source
  source=$1
  faults=0
  for folder in $folders; do
    [ ! -d "$source/$folder" ] || check_includes "$folder"
  done
  check_planner_source
  [ "$faults" = 0 ]
}

check_objects() { # lists
  lists=$1
  faults=0
  for folder in $library; do
    symbols "$folder" --defined-only >"$work/$folder.defined"
    symbols "$folder" --undefined-only >"$work/$folder.undefined"
    [ -s "$work/$folder.defined" ] || fault "$folder has no objects"
  done
  for folder in $library; do check_symbols "$folder"; done
  check_planner_symbols
  [ "$faults" = 0 ]
}

check_all() { # source lists
  check_sources "$1" && check_objects "$2"
}

# ---- Self-test: every kind of fault is planted once and must be seen ---------

must_see() { # message check argument, after a fault was planted
  if "$2" "$3" 2>"$work/said"; then
    echo "self-test: not noticed: $1" >&2
    exit 1
  fi
  if ! grep -qF -e "$1" "$work/said"; then
    echo "self-test: \"$1\" was expected, and this came:" >&2
    cat "$work/said" >&2
    exit 1
  fi
}

plant_source() { # file line message
  mkdir -p "$(dirname "$copy/$1")"
  [ ! -e "$copy/$1" ] || cp "$copy/$1" "$work/kept"
  echo "$2" >>"$copy/$1"
  must_see "$3" check_sources "$copy"
  if [ -e "$work/kept" ]; then mv "$work/kept" "$copy/$1"; else
    rm "$copy/$1"
  fi
}

plant_object() { # folder C-text message
  echo "$2" |
    ${CC:-cc} -std=gnu11 -w -fno-builtin -x c -c -o "$work/planted.o" -
  cp "$copy/lists/$1.objects" "$work/kept"
  printf '%s\n' "$work/planted.o" >>"$copy/lists/$1.objects"
  must_see "$3" check_objects "$copy/lists"
  mv "$work/kept" "$copy/lists/$1.objects"
}

self_test() {
  copy=$work/copy
  mkdir -p "$copy"
  cp -r "$2" "$copy/lists"
  for folder in $folders; do
    [ ! -d "$1/$folder" ] || cp -r "$1/$folder" "$copy/$folder"
  done
  check_all "$copy" "$copy/lists"

  plant_source base/log.c '#include "topo/topology.h"' \
    'base/log.c includes "topo/topology.h"'
  plant_source base/deep/new.h '#  include "kernels/rows.h"' \
    'base/deep/new.h includes "kernels/rows.h"'
  plant_source topo/topology.c '#include "planner/plan.h"' \
    'topo/topology.c includes'
  plant_source kernels/rows.c '#include "planner/plan.h"' \
    'kernels/rows.c includes'
  plant_source collectives/new.cu '#include "lrmoe_device.h"' \
    'collectives/new.cu includes'
  plant_source planner/plan.c '#include "kernels/../collectives/step.h"' \
    'planner/plan.c includes'
  plant_source planner/plan.c '#include "base/../collectives/step.h"' \
    'planner/plan.c includes'
  plant_source collectives/new.cu '#include "plugin/shim.h"' \
    'collectives/new.cu includes'
  plant_source tools/lrmoe_params.c '#include "base/param.h"' \
    'tools/lrmoe_params.c includes'
  plant_source perf/new.c '#include "tools/lrmoe_plan.h"' \
    'perf/new.c includes'
  plant_source examples/new.c '#include "tools/common/args.h"' \
    'examples/new.c includes'
  plant_source include/lrmoe.h '#include "base/result.h"' \
    'include/lrmoe.h includes'
  plant_source planner/quota.c 'static double rho;' \
    'the planner has floating point'
  plant_source planner/rivals/eplb.c 'static float share;' \
    'the planner has floating point'

  plant_object base 'void lrmoePlanFinish(void); void f(void) {
    lrmoePlanFinish(); }' 'base calls lrmoePlanFinish of planner'
  plant_object kernels 'void lrmoeSelect(void); void f(void) {
    lrmoeSelect(); }' 'kernels calls lrmoeSelect of collectives'
  plant_object topo 'void lrmoePlanMake(void); void f(void) {
    lrmoePlanMake(); }' 'topo calls lrmoePlanMake of planner'
  plant_object planner 'void lrmoeSelect(void); void f(void) {
    lrmoeSelect(); }' 'planner calls lrmoeSelect of collectives'
  plant_object collectives 'void lrmoePreloadSort(void); void f(void) {
    lrmoePreloadSort(); }' 'collectives calls lrmoePreloadSort of plugin'
  for name in getenv fopen clock_gettime printf pthread_create rand malloc \
    exp; do
    plant_object planner "void $name(void); void f(void) { $name(); }" \
      "the planner calls $name"
  done
  plant_object collectives 'void getenv(void); void f(void) { getenv(); }' \
    'collectives uses getenv'
  for name in ncclSend cudaMalloc cuInit cblas_sgemm GOMP_parallel; do
    plant_object collectives "void $name(void); void f(void) { $name(); }" \
      "collectives calls $name"
  done
  : >"$copy/lists/topo.objects"
  must_see 'topo has no objects' check_objects "$copy/lists"
  echo 'self-test: good'
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ "$1" = --self-test ]; then
  self_test "$2" "$3"
else
  check_all "$1" "$2"
fi
