# One line a kernel from the lines of registers.awk and vectors.awk, demangled:
# "kernel<arguments> registers... loads stores".

# The name without its result and parameters, and without blanks.
function nameOf(text, depth, i, c) {
  gsub(/_INTERNAL_[A-Za-z0-9_]*::/, "", text)
  gsub(/\(anonymous namespace\)::/, "", text)
  sub(/^void /, "", text)
  depth = 0
  for (i = 1; i <= length(text); i++) {
    c = substr(text, i, 1)
    if (c == "<") depth++
    if (c == ">") depth--
    if (c == "(" && depth == 0) break
  }
  text = substr(text, 1, i - 1)
  gsub(/ /, "", text)
  return text
}
{
  first = $2
  second = $3
  kind = $1
  text = $0
  sub(/^[a-z]+ [0-9]+ [0-9]+ /, "", text)
  name = nameOf(text)
}
kind == "used" {
  names[name] = 1
  used[name, first] = second
}
kind == "vectors" {
  loads[name] = first
  stores[name] = second
}
END {
  count = split(architectures, list, " ")
  for (name in names) {
    line = name
    for (i = 1; i <= count; i++) line = line " " used[name, list[i]]
    print line, loads[name] + 0, stores[name] + 0
  }
}
