# "used SYMBOL ARCHITECTURE REGISTERS" from what ptxas -v says.
/Compiling entry function/ {
  split($0, parts, "'")
  symbol = parts[2]
  architecture = parts[4]
  sub(/^sm_/, "", architecture)
}
/: Used [0-9]+ registers/ && symbol != "" {
  sub(/.*: Used /, "")
  print "used", architecture, $1 + 0, symbol
  symbol = ""
}
