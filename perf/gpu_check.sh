#!/bin/sh
# Checks and times LRMoE on a GPU machine on which nothing can be installed.
#
#   perf/gpu_check.sh bundle FOLDER   builds, and fills FOLDER with all that the
#                                     other machine needs; no GPU is needed here
#   FOLDER/gpu_check.sh [OUT.json [option of moe_backward_perf ...]]
#                                     there: kernels against the CPU's, then an
#                                     MoE layer's backward at the paper's shape
#
# The GPU machine brings the driver, CUDA's run-time library and cuBLAS of the
# major version that the bundle was built with, and NCCL 2.27 or newer; folders
# outside the loader's path go into LD_LIBRARY_PATH.  It ends within 6 minutes
# with 0 (all right), 1 (wrong use), 3 (something is missing) or 7 (wrong
# results).
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
kernels="gpu_rows gpu_words gpu_select gpu_lists gpu_labels
  gpu_expert gpu_split"
programs="moe_backward_perf $kernels"
most=60 # MiB of a bundle
limit=${LRMOE_CHECK_SECONDS:-60} # for each of its programs

usage() {
  sed -n '2,/^set/s/^# \{0,1\}//p' "$0" | sed '$d'
}

fail() {
  code=$1
  shift
  echo "gpu_check.sh: $*" >&2
  exit "$code"
}

# ---- Here: the bundle -----------------------------------------------------

# Libraries that a file needs and the other machine may lack.
needed() {
  ldd "$1" | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p' |
    grep -v -E '/(ld-linux|lib(c|m|dl|rt|pthread|resolv)\.so|lib(cuda|cudart|cublas|cublasLt|nccl)\.so)' ||
    true
}

bundle() {
  folder=$1
  [ ! -e "$folder" ] || fail 1 "$folder is there already"
  top=$(CDPATH='' cd -- "$here/.." && pwd)
  build=${LRMOE_BUILD:-$top/build-gpu}
  [ -n "${LRMOE_BUILD-}" ] || "$top/tools/setup.sh" build tests
  [ -f "$build/build.ninja" ] ||
    cmake -S "$top" -B "$build" -G Ninja >/dev/null
  grep -q '^build gpu_rows:' "$build/build.ninja" ||
    fail 3 "the CUDA backend is not built here: nvcc and cuBLAS are needed"
  # shellcheck disable=SC2086 # names without blanks
  cmake --build "$build" --target lrmoe lrmoe_cuda $programs >/dev/null
  mkdir -p "$folder/bin" "$folder/lib"
  cp "$here/gpu_check.sh" "$folder"
  cp "$build/perf/moe_backward_perf" "$build/gpu"/gpu_* "$folder/bin"
  cp "$build/lib/liblrmoe_cuda.so" "$folder/lib"
  strip --strip-debug "$folder/bin"/* "$folder/lib/liblrmoe_cuda.so"
  for file in "$folder/bin"/* "$folder/lib/liblrmoe_cuda.so"; do
    for library in $(needed "$file"); do
      cp -L "$library" "$folder/lib"
    done
  done
  size=$(du -sm "$folder" | cut -f 1)
  [ "$size" -le "$most" ] || fail 2 "the bundle has $size MiB, not $most at most"
  echo "$folder: $size MiB"
}

# ---- There: the check -----------------------------------------------------

# Names what the loader does not find, of all that will be loaded.
look() {
  for file in "$here/bin"/* "$here/lib/liblrmoe_cuda.so"; do
    LD_TRACE_LOADED_OBJECTS=1 /lib64/ld-linux-x86-64.so.2 "$file" 2>&1 |
      sed -n 's/^[[:space:]]*\(.*\) => not found.*/\1/p'
  done | sort -u
}

# One test program, each case in one process: CUDA starts once.
check() {
  echo "# $1"
  CK_FORK=no timeout "$limit" "$here/bin/$1" >"$work/$1" 2>&1 && code=0 || code=$?
  tail -n 3 "$work/$1"
  [ "$code" = 0 ] || wrong="$wrong $1"
}

check_kernels() {
  "$here/bin/gpu_words" >"$work/first" 2>&1 ||
    ! grep -m 1 'not installed' "$work/first" >&2 ||
    fail 3 "the GPU cannot be used (see above)"
  for name in $kernels; do
    check "$name"
  done
  if command -v compute-sanitizer >/dev/null; then
    echo "# gpu_select under compute-sanitizer"
    CK_FORK=no timeout "$limit" compute-sanitizer --error-exitcode 9 \
      "$here/bin/gpu_select" >"$work/sanitizer" 2>&1 ||
      { tail -n 20 "$work/sanitizer"; wrong="$wrong compute-sanitizer"; }
  fi
}

# One GPU's share of the paper's layer: 16 experts here, 262,144 pairs.
time_layer() {
  echo "# the backward of one layer, one GPU"
  LRMOE_BACKEND=cuda timeout $((limit * 5 / 2)) "$here/bin/moe_backward_perf" -g 1 \
    --experts 16 --topk 8 -b 32768 -e 32768 --hidden 2048 --ffn 768 \
    --routing balanced --retain 1,0.8,0.7 --staged "$@" \
    -J "$work/layer.json" ||
    wrong="$wrong moe_backward_perf"
}

run() {
  out=${1:-gpu_check.json}
  [ $# = 0 ] || shift
  export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  export LRMOE_MODULE_PATH="$here/lib"
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  wrong=
  missing=$(look | tr '\n' ' ')
  [ -z "$missing" ] || fail 3 "this machine has no ${missing% } (LD_LIBRARY_PATH?)"
  card=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader \
    2>/dev/null | head -n 1 || true)
  echo "# GPU: ${card:-unknown}"
  check_kernels
  time_layer "$@"
  [ -s "$work/layer.json" ] || echo null >"$work/layer.json"
  {
    printf '{"schema": 1, "gpu": "%s", "wrong": "%s", "layer":\n' \
      "${card:-unknown}" "${wrong# }"
    cat "$work/layer.json"
    echo '}'
  } >"$out"
  echo "# $out"
  [ -z "$wrong" ] || fail 7 "wrong:$wrong"
}

case ${1-} in
  -h | --help)
    usage
    ;;
  bundle)
    [ $# = 2 ] || fail 1 "bundle needs one folder (try --help)"
    bundle "$2"
    ;;
  *)
    [ -d "$here/bin" ] || fail 1 "this is not a bundle (try --help)"
    run "$@"
    ;;
esac
