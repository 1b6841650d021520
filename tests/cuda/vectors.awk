# "vectors LOADS STORES SYMBOL" from PTX: 16-byte accesses of global memory, or
# of memory whose kind the compiler does not know.
function flush() {
  if (symbol != "") print "vectors", loads, stores, symbol
}
/\.entry / {
  flush()
  symbol = $0
  sub(/.*\.entry[ \t]+/, "", symbol)
  sub(/[ \t(].*/, "", symbol)
  loads = stores = 0
}
{
  sub(/^[ \t]*(@!?%p[0-9]+[ \t]+)?/, "")
}
/^(ld|st)\./ && !/^(ld|st)\.(param|shared|local|const)/ &&
/\.(v4\.[busf]32|v2\.[busf]64|b128)[ \t]/ {
  if (/^ld/) loads++
  else stores++
}
END { flush() }
