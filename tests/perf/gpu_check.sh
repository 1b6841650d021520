#!/bin/sh
# perf/gpu_check.sh: the bundle, on a machine that has next to nothing, and on
# the emulator in place of a GPU.
#
#   gpu_check.sh PROJECT BUILD EMULATOR MODULE NCCL
set -eu
project=$1
build=$2
emulator=$3
module=$4
nccl=$5

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "gpu_check: $*" >&2
  exit 1
}

# Ends with the code, and says the text.
expect() {
  code=$1
  text=$2
  shift 2
  "$@" >"$work/log" 2>&1 && got=0 || got=$?
  [ "$got" = "$code" ] || { cat "$work/log"; fail "$*: $got, not $code"; }
  grep -q -e "$text" "$work/log" || { cat "$work/log"; fail "$*: no '$text'"; }
}

check=$project/perf/gpu_check.sh
export LRMOE_BUILD="$build"
expect 0 'bundle FOLDER' "$check" --help
expect 1 'needs one folder' "$check" bundle
expect 1 'not a bundle' "$check"
expect 0 'MiB' "$check" bundle "$work/bundle"
expect 1 'there already' "$check" bundle "$work/bundle"

# A root with a shell, what the script calls, and the C library: without CUDA.
copy() {
  for file in "$1" $(ldd "$1" | sed -n 's/[^/]*\(\/[^ ]*\).*/\1/p'); do
    mkdir -p "$work/root$(dirname "$file")"
    cp -L "$file" "$work/root$file"
  done
}
if [ "$(id -u)" = 0 ] && chroot / true 2>/dev/null; then
  mkdir -p "$work/root/tmp" "$work/root/usr/bin"
  ln -s usr/bin "$work/root/bin"
  for tool in sh sed sort tr dirname mktemp rm head tail cat grep timeout; do
    copy "$(command -v "$tool")"
  done
  cp -r "$work/bundle" "$work/root/check"
  expect 3 'this machine has no .*libcublas' \
    env -u LD_LIBRARY_PATH PATH=/usr/sbin:/usr/bin:/bin chroot "$work/root" \
    /check/gpu_check.sh /tmp/out.json
else
  echo "gpu_check: no bare root: not allowed to chroot"
fi

# Where there is no driver the real module says so.
if [ ! -e /dev/nvidiactl ]; then
  expect 3 'cudaGetDeviceCount' "$work/bundle/gpu_check.sh" "$work/out.json"
fi

cp "$module" "$work/bundle/lib/liblrmoe_cuda.so"
expect 0 '100%: Checks' env LRMOE_CHECK_SECONDS=500 LRMOE_NCCL_PATH="$nccl" \
  LD_PRELOAD="$emulator" "$work/bundle/gpu_check.sh" "$work/out.json" \
  -b 32 -e 32 --hidden 32 --ffn 16 -n 2 --retain 0.7
grep -q '"wrong": "", "layer":' "$work/out.json" || fail "out.json"
grep -q '"select_ms"' "$work/out.json" || fail "out.json has no phases"
echo "gpu_check: all right"
