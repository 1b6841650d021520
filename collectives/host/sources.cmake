# Sources of the host optimizer, relative to collectives/.
set(LRMOE_HOST_SOURCES
  host/adamw.c host/optimizer.c host/push.c host/save.c host/team.c)
# As in kernels/: no option here may change a result.
set_source_files_properties(host/adamw.c PROPERTIES COMPILE_OPTIONS
  "-O3;-fno-math-errno;-fno-trapping-math")
