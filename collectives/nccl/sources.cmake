# Sources of the NCCL filler of the transport table, relative to collectives/.
set(LRMOE_NCCL_TRANSPORT_SOURCES
  nccl/call.c nccl/comm.c nccl/gin.c nccl/group.c nccl/issue.c nccl/join.c
  nccl/load.c nccl/transport.c nccl/window_228.c nccl/window_229.c)
