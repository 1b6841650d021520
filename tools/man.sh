#!/bin/sh
# A man page from a program's own --help, so that the two cannot differ.
#
#   man.sh PROGRAM VERSION PAGE.1
#
# Of --help: "Usage: NAME ...", what it does, "Options [default]:" with an option
# a line, its text from column 31 on or on the lines below, notes, "Exit status:".
set -eu

trap 'rm -f "$3.new"' EXIT
"$1" --help | awk -v version="$2" '
function safe(text) {
  gsub(/\\/, "\\e", text)
  gsub(/-/, "\\-", text)
  if (text ~ /^[.\x27]/) text = "\\&" text
  return text
}
/^Usage: / {
  name = $2
  usage = substr($0, 8)
  next
}
/^Options/ {
  isOptions = 1
  print ".SH OPTIONS"
  print "Defaults are in brackets."
  next
}
!isOptions {
  if (NF) summary = summary (summary ? " " : "") $0
  if (NF || !summary || isHeaded) next
  isHeaded = 1
  short = summary
  sub(/\. .*/, "", short)
  sub(/\.$/, "", short)
  printf ".TH %s 1 \"\" \"LRMoE %s\"\n", toupper(name), version
  printf ".SH NAME\n%s \\- %s\n", safe(name), safe(short)
  printf ".SH SYNOPSIS\n.B %s\n", safe(usage)
  printf ".SH DESCRIPTION\n%s\n", safe(summary)
  next
}
/^ +-/ {
  option = $0
  text = ""
  if (length($0) > 30 && substr($0, 29, 2) == "  ") {
    option = substr($0, 1, 28)
    text = substr($0, 31)
  }
  gsub(/^ +| +$/, "", option)
  printf ".TP\n.B %s\n", safe(option)
  if (text) print safe(text)
  next
}
/^ / {
  sub(/^ +/, "")
  print safe($0)
  next
}
/^Exit status: / {
  print ".SH EXIT STATUS"
  $0 = substr($0, 14)
  isText = 1
}
NF {
  if (!isText) print ".SH NOTES"
  isText = 1
  print safe($0)
}
END { exit !isHeaded }' >"$3.new"
mv "$3.new" "$3"
