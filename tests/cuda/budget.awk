# Compares the table of kernels (second file) with the budget (first file),
# whose comment "# kernel sm_80 ..." names its columns.
FNR == 1 { file++ }
file == 1 && /^# kernel / {
  for (i = 3; i <= NF; i++) column[i - 1] = $i
  next
}
/^#/ || NF == 0 { next }
FILENAME != ARGV[ARGC - 1] {
  budget[$1] = $0
  next
}
{
  seen[$1] = 1
  if (!($1 in budget)) {
    print $1 ": not in the budget: " $0
    next
  }
  if (split(budget[$1], allowed, " ") != NF) {
    print $1 ": the budget has other columns"
    next
  }
  for (i = 2; i <= NF - 2; i++)
    if ($i > allowed[i] + 0)
      print $1 ": " $i " registers on " column[i] ", " allowed[i] \
        " in the budget"
  if ($(NF - 1) < allowed[NF - 1])
    print $1 ": " $(NF - 1) " 16-byte loads, " allowed[NF - 1] " in the budget"
  if ($NF < allowed[NF])
    print $1 ": " $NF " 16-byte stores, " allowed[NF] " in the budget"
}
END {
  for (name in budget)
    if (!(name in seen)) print name ": in the budget and no kernel"
}
