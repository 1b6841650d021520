#!/bin/sh
# The table of LRMOE_* variables in README.md is the one that lrmoe-params
# prints.
#
#   readme_table.sh PROGRAM README     compare
#   readme_table.sh PROGRAM --self-test
#
# To bring README.md up to date, put the output of lrmoe-params between the
# lines <!-- parameters --> and <!-- /parameters -->.
set -eu

program=$1
readme=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Lines between the two marks, without empty ones around the table.
block() {
  sed -n '/^<!-- parameters -->$/,/^<!-- \/parameters -->$/p' "$1" |
    sed -e '1d' -e '$d' -e '/^$/d'
}

compare() {
  "$program" >"$work/expected"
  for mark in '<!-- parameters -->' '<!-- /parameters -->'; do
    if [ "$(grep -cxF -e "$mark" "$1")" != 1 ]; then
      echo "$1: the line \"$mark\" must be there once" >&2
      return 1
    fi
  done
  block "$1" >"$work/found"
  if ! diff -u "$work/expected" "$work/found" >&2; then
    echo "$1: the table differs from the output of lrmoe-params" >&2
    return 1
  fi
}

if [ "$readme" != --self-test ]; then
  compare "$readme"
  exit
fi

good=$work/good.md
{
  printf '# Title\n\n<!-- parameters -->\n\n'
  "$program"
  printf '\n<!-- /parameters -->\n\nText.\n'
} >"$good"
compare "$good"

must_fail() {
  if compare "$work/bad.md" 2>/dev/null; then
    echo "self-test: not noticed: $1" >&2
    exit 1
  fi
}
sed 's/| 30000 |/| 30001 |/' "$good" >"$work/bad.md"
must_fail 'another default'
grep -v LRMOE_DEBUG "$good" >"$work/bad.md"
must_fail 'a missing row'
# shellcheck disable=SC2016
sed 's/^| `LRMOE_DEBUG`/| `LRMOE_OLD` | 1 | Gone. |\n&/' "$good" \
  >"$work/bad.md"
must_fail 'a spare row'
grep -v '^<!-- /parameters' "$good" >"$work/bad.md"
must_fail 'a missing end mark'
printf '# Title\n' >"$work/bad.md"
must_fail 'no table'
echo "self-test: good"
