#!/bin/sh
# Runs clang-tidy on the files named on standard input that the build in the
# given folder compiles; says how many there were.
#
#   tests/tidy.sh BUILD < files
set -eu
build=$1
list=$(mktemp)
trap 'rm -f "$list"' EXIT
while read -r file; do
  if grep -q "/$file\"" "$build/compile_commands.json"; then
    echo "$file"
  fi
done >"$list"
xargs -P "$(nproc)" -n 4 clang-tidy --quiet -p "$build" <"$list" 2>"$list.err" ||
  { cat "$list.err" >&2; rm -f "$list.err"; exit 1; }
rm -f "$list.err"
echo "$(wc -l <"$list") files are tidy"
