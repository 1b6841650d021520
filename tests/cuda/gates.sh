#!/bin/sh
# What CUDA kernels must be, as far as a compiler can tell.
#
#   gates.sh kernels SOURCE     all gates on kernels/*.cu
#   gates.sh budget SOURCE      writes kernels/registers.txt anew
#   gates.sh exports LIBRARY MAP
#   gates.sh --self-test SOURCE
#
# kernels: nvcc and the host compiler warn of nothing, for each architecture;
# no kernel spills, has local memory or computes in double; none needs more
# registers, or has fewer 16-byte loads and stores of global memory, than
# kernels/registers.txt says; none has an atomic on floats.
# exports: the library exports the names of its map and needs only what a GPU
# program needs.
#
# Exits with 77 and the reason where there is no nvcc (NVCC, CUDA_HOME, PATH).
set -eu
export LC_ALL=C
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

architectures=${LRMOE_ARCHITECTURES:-'80 90 100'}

faults=0
fault() {
  echo "gates: $*" >&2
  faults=$((faults + 1))
}

find_nvcc() {
  nvcc=${NVCC:-}
  if [ -z "$nvcc" ] && [ -x "${CUDA_HOME:-}/bin/nvcc" ]; then
    nvcc=$CUDA_HOME/bin/nvcc
  fi
  [ -n "$nvcc" ] || nvcc=$(command -v nvcc || true)
  if [ -z "$nvcc" ]; then
    echo "skipped: no nvcc (set NVCC or CUDA_HOME, or put it on PATH)"
    exit 77
  fi
}

sources() { # source-tree
  find "$1/kernels" -name '*.cu' | sort
}

# ---- Warnings, spills, local memory, doubles ---------------------------------

# Compiles the kernels of a tree, a file for each processor.
check_compiles() { # tree; leaves the logs in $work/ptxas, the code in all.ptx
  rm -rf "$work/compiled"
  : >"$work/ptxas"
  : >"$work/all.ptx"
  sources "$1" | NVCC=$nvcc ARCHITECTURES=$architectures \
    xargs -P "$(nproc)" -n 1 "$here/compile.sh" "$headers" "$work/compiled"
  for file in $(sources "$1"); do
    made=$work/compiled/$(echo "$file" | tr / _)
    if [ -e "$made/failed" ]; then
      grep -E 'error|warning' "$made/log" >&2 || cat "$made/log" >&2
      fault "${file#"$1"/} is not clean"
    else
      cat "$made/log" >>"$work/ptxas"
      cat "$made/ptx" >>"$work/all.ptx"
    fi
  done
}

# ---- Registers and vector accesses --------------------------------------------

# "kernel sm_80 sm_90 ... loads stores" for every kernel, by name.
measure() { # tree; after check_compiles
  awk -f "$here/registers.awk" "$work/ptxas" >"$work/used"
  awk -f "$here/vectors.awk" "$work/all.ptx" >"$work/vectors"
  cat "$work/used" "$work/vectors" | c++filt |
    awk -v architectures="$architectures" -f "$here/table.awk" | sort
}

# Lines of "what kernel used allowed" where the budget is not kept.
check_budget() { # tree
  touch "$work/none"
  budget=$1/kernels/registers.txt
  [ -e "$budget" ] || budget=$work/none
  # Without NCCL's device header gin.cu has no kernels.
  if ! echo '#include <nccl_device.h>' |
    "$nvcc" -std=c++17 -x cu -E - >"$work/header" 2>&1; then
    grep -v '^gin[A-Z]' "$budget" >"$work/budget" || true
    budget=$work/budget
  fi
  awk -f "$here/budget.awk" "$budget" "$work/table" >"$work/over"
  while read -r line; do fault "$line"; done <"$work/over"
}

# ---- Atomics on floats: their sums depend on the order of threads ------------

check_atomics() {
  pattern='^[[:space:]]*(@!?%p[0-9]+[[:space:]]+)?(atom|red)\.([a-z0-9_:]+\.)*'
  pattern="$pattern(f16|f16x2|bf16|bf16x2|f32|f64)"
  if grep -nE "$pattern" "$work/all.ptx" >"$work/found"; then
    fault "an atomic on floats: $(head -n 1 "$work/found")"
  fi
}

check_kernels() { # tree
  faults=0
  if [ -z "$(sources "$1")" ] && [ ! -e "$1/kernels/registers.txt" ]; then
    echo "there are no kernels"
    return 0
  fi
  check_compiles "$1"
  [ "$faults" = 0 ] || return 1
  measure "$1" >"$work/table"
  check_budget "$1"
  check_atomics
  [ "$faults" = 0 ] || return 1
  echo "$(wc -l <"$work/table") kernels are within their budget"
}

write_budget() { # tree
  faults=0
  check_compiles "$1"
  [ "$faults" = 0 ] || return 1
  {
    echo "# Most registers per thread on each architecture, and least 16-byte"
    echo "# loads and stores of global memory; tests/cuda/gates.sh budget"
    printf '# kernel'
    for architecture in $architectures; do printf ' sm_%s' "$architecture"; done
    echo ' loads stores'
    measure "$1"
  } >"$work/registers.txt"
  [ "$faults" = 0 ] || return 1
  mv "$work/registers.txt" "$1/kernels/registers.txt"
}

# ---- The library ---------------------------------------------------------------

listed() { # map
  ${CC:-cc} -E -P -x c "$1" | tr ' ' '\n' | tr -d ';' |
    grep -E '^lrmoe[A-Z][A-Za-z0-9]*$' | sort -u
}

check_exports() { # library map
  faults=0
  listed "$2" >"$work/listed"
  nm -D --defined-only "$1" |
    awk '$2 != "A" {sub(/@.*/, "", $3); print $3}' | sort -u >"$work/exported"
  [ -s "$work/exported" ] || fault "no name is exported"
  for name in $(comm -23 "$work/listed" "$work/exported"); do
    fault "$name is listed and not exported"
  done
  for name in $(comm -13 "$work/listed" "$work/exported"); do
    fault "$name is exported and not listed"
  done
  for name in $(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p'); do
    case $name in
    libcudart.so.* | libcublas.so.* | liblrmoe.so.* | libc.so.* | libm.so.* | \
      libpthread.so.* | libdl.so.* | librt.so.* | ld-linux*.so.* | \
      libstdc++.so.* | libgcc_s.so.*) ;;
    *) fault "it needs $name" ;;
    esac
  done
  [ "$faults" = 0 ]
}

# ---- Self-test: every kind of fault is planted once and must be seen ---------

must_see() { # message command argument...
  message=$1
  shift
  if "$@" >"$work/said" 2>&1; then
    echo "self-test: not noticed: $message" >&2
    exit 1
  fi
  grep -qE -e "$message" "$work/said" || {
    echo "self-test: \"$message\" was expected, and this came:" >&2
    cat "$work/said" >&2
    exit 1
  }
}

# The faulty kernel alone.
plant_kernel() { # file
  mkdir -p "$work/planted/kernels"
  cp "$1" "$work/planted/kernels/planted.cu"
  message=$(sed -n 's|^// expected: ||p' "$1")
  must_see "$message" check_kernels "$work/planted"
}

# A changed budget, with the table of kernels that was measured.
plant_budget() { # sed-command message
  mkdir -p "$work/changed/kernels"
  sed "$1" "$tree/kernels/registers.txt" >"$work/changed/kernels/registers.txt"
  faults=0
  must_see "$2" keeps_budget "$work/changed"
}

keeps_budget() { # tree
  check_budget "$1"
  [ "$faults" = 0 ]
}

plant_kernels() {
  tree=$work/tree
  mkdir -p "$tree/kernels"
  cp "$here/good.cu" "$tree/kernels/good.cu"
  write_budget "$tree"
  check_kernels "$tree"
  cp "$work/table" "$work/table.good"
  for file in "$here"/planted/*.cu; do plant_kernel "$file"; done
  cp "$work/table.good" "$work/table"
  plant_budget 's/^\(copyKernel<float>\) [0-9]*/\1 5/' \
    'copyKernel<float>: [0-9]+ registers on sm_90, 5 in the budget'
  plant_budget '/^copyKernel<float>/d' 'copyKernel<float>: not in the budget'
  plant_budget 's/^copyKernel<float>/goneKernel/' \
    'goneKernel: in the budget and no kernel'
  plant_budget 's/^\(copyKernel<float> .*\) 0 0$/\1 1 0/' \
    'copyKernel<float>: 0 16-byte loads, 1 in the budget'
  plant_budget 's/^\(copyKernel<uint4> .*\) 1$/\1 2/' \
    'copyKernel<uint4>: 1 16-byte stores, 2 in the budget'
}

plant_libraries() {
  cc=${CC:-cc}
  echo 'X_0 { global: lrmoeGood; local: *; };' >"$work/x.map"
  echo 'int lrmoeGood; int lrmoeExtra;' >"$work/x.c"
  echo 'int needed;' | $cc -shared -fPIC -Wl,-soname,libneeded.so.1 \
    -o "$work/libneeded.so" -x c -
  $cc -shared -fPIC -Wl,--version-script="$work/x.map" \
    -o "$work/good.so" "$work/x.c"
  check_exports "$work/good.so" "$work/x.map"
  $cc -shared -fPIC -o "$work/extra.so" "$work/x.c"
  must_see 'lrmoeExtra is exported and not listed' check_exports \
    "$work/extra.so" "$work/x.map"
  sed 's/lrmoeGood;/lrmoeGood; lrmoeOther;/' "$work/x.map" >"$work/y.map"
  must_see 'lrmoeOther is listed and not exported' check_exports \
    "$work/good.so" "$work/y.map"
  $cc -shared -fPIC -Wl,--version-script="$work/x.map" -Wl,--no-as-needed \
    -o "$work/needs.so" "$work/x.c" "$work/libneeded.so"
  must_see 'it needs libneeded.so.1' check_exports "$work/needs.so" \
    "$work/x.map"
}

self_test() {
  architectures=90 # one will do: three take three times as long
  plant_libraries
  plant_kernels
  echo 'self-test: good'
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case ${1:-} in
kernels | budget | --self-test)
  headers=$2
  find_nvcc
  ;;
esac
case ${1:-} in
kernels) check_kernels "$2" ;;
budget) write_budget "$2" ;;
exports) check_exports "$2" "$3" ;;
--self-test) self_test ;;
*)
  sed -n '2,/^set/s/^# \{0,1\}//p' "$0" | sed '$d' >&2
  exit 1
  ;;
esac
