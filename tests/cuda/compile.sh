#!/bin/sh
# Compiles one CUDA source for gates.sh, with everything that is a warning as
# an error.
#
#   compile.sh HEADERS OUT FILE
#
# HEADERS is the tree whose headers it includes.  Leaves in OUT/FILE's name:
# log (what ptxas and the compilers say), ptx (of compute_90), and failed if
# the source is not clean.  NVCC and ARCHITECTURES say with what, and for what.
set -eu
headers=$1
out=$2/$(echo "$3" | tr / _)
mkdir -p "$out"

targets=
for architecture in $ARCHITECTURES; do
  targets="$targets -gencode arch=compute_$architecture,code=sm_$architecture"
done
# NCCL's device header has small arrays of its own.
local=,-warn-lmem-usage
case $3 in */kernels/cuda/gin.cu) local= ;; esac
# shellcheck disable=SC2086 # the list is meant to be split
"$NVCC" -std=c++17 -O3 -I"$headers/kernels/nvcc" -I"$headers" \
  -I"$headers/include" $targets -Werror all-warnings \
  -Xcompiler -Wall,-Wextra,-Werror \
  -Xptxas "-v,-warn-spills$local,-warn-double-usage,-Werror" \
  --keep --keep-dir "$out" -c "$3" -o "$out/object.o" >"$out/log" 2>&1 ||
  touch "$out/failed"
# With one architecture its name is not in the file's.
name=$out/$(basename "$3" .cu)
mv "$name.compute_90.ptx" "$out/ptx" 2>/dev/null ||
  mv "$name.ptx" "$out/ptx" 2>/dev/null || touch "$out/failed"
find "$out" -type f ! -name log ! -name ptx ! -name failed -delete
