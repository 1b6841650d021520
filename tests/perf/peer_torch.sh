#!/bin/sh
# peer_torch: both of its ways give the same dX on small shapes, and what it
# writes can be read; 77 where PyTorch is missing.
#
#   peer_torch.sh PATH-OF-PEER_TORCH PATH-OF-REPORT
set -eu

peer=$1
report=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
shape="-b 24 -n 2 --experts 5 --topk 2 --hidden 32 --ffn 16"
# shellcheck disable=SC2086 # options without blanks
"$peer" -g 2 $shape --retain 0.5 -J "$work/out.json" >"$work/out" || {
  code=$?
  [ "$code" -ne 3 ] || exit 77
  exit "$code"
}
grep -q '"way": "compact"' "$work/out.json"
"$report" -o "$work/page.html" "$work/out.json"
grep -q 'peer_torch' "$work/page.html"
code=0
"$peer" --experts 2 --topk 3 >/dev/null 2>"$work/err" || code=$?
[ "$code" -eq 1 ] || {
  echo "peer_torch.sh: --topk over --experts: code $code, not 1" >&2
  exit 1
}
grep -q -e '--topk' "$work/err"
