# Sources of the CPU transport, relative to collectives/.
set(LRMOE_CPU_TRANSPORT_SOURCES
  cpu/bootstrap.c cpu/bootstrap_join.c cpu/bootstrap_root.c cpu/collective.c
  cpu/comm.c cpu/copy.c cpu/failure.c cpu/fault.c cpu/group.c cpu/heap.c
  cpu/liveness.c cpu/mapping.c cpu/note.c cpu/p2p.c cpu/reduce.c cpu/secret.c
  cpu/segment.c cpu/split.c cpu/transport.c cpu/types.c cpu/wait.c
  cpu/window.c)
