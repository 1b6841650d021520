#!/bin/sh
# Sets a Debian 12 machine up: installs the named groups of packages that are
# missing.  As root it uses apt-get; otherwise it prints the command and exits
# with 3.
#
#   tools/setup.sh [build] [perf] [milp] [train] [peer] [tests]
set -eu

build="gcc libc6-dev cmake ninja-build pkg-config libhwloc-dev libjansson-dev libxml2-dev
       libopenblas-dev"
perf="libopenmpi-dev openmpi-bin libdnnl-dev"
milp="coinor-cbc"
train="fortunes"
peer="python3-torch"
tests="g++ check binutils clang clang-format clang-tidy libclang-rt-14-dev
       libdnnl-dev coinor-cbc"

missing=
for group in "$@"; do
  case $group in
    build) packages=$build ;;
    perf) packages=$perf ;;
    milp) packages=$milp ;;
    train) packages=$train ;;
    peer) packages=$peer ;;
    tests) packages=$tests ;;
    *)
      echo "tools/setup.sh: no group '$group': build, perf, milp, train, peer or tests" >&2
      exit 1
      ;;
  esac
  for package in $packages; do
    status=$(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null ||
             true)
    case $status in
      ii*) ;;
      *) missing="$missing $package" ;;
    esac
  done
done

[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null; then
  echo "tools/setup.sh: no apt-get here; needed (Debian names):$missing" >&2
  exit 3
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "To install what is missing, run:" >&2
  echo "  sudo apt-get install -y --no-install-recommends$missing" >&2
  exit 3
fi
echo "# installing:$missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086 # the list is meant to be split
apt-get install -y -qq --no-install-recommends $missing >/dev/null
