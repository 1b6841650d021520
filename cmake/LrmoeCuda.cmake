# The CUDA toolkit, where there is one: from CUDAToolkit_ROOT, CUDA_HOME,
# CUDA_PATH, or the nvcc on PATH.
#
#   LRMOE_CUDA_INCLUDE_DIRS  its headers, or LRMOE_CUDA_MISSING says why not
#   LRMOE_NVCC               its compiler, or not set

include_guard(GLOBAL)
if(NOT CUDAToolkit_ROOT AND DEFINED ENV{CUDA_HOME})
  set(CUDAToolkit_ROOT "$ENV{CUDA_HOME}")
endif()
find_package(CUDAToolkit QUIET)
if(CUDAToolkit_FOUND)
  set(LRMOE_CUDA_INCLUDE_DIRS ${CUDAToolkit_INCLUDE_DIRS})
  if(CUDAToolkit_NVCC_EXECUTABLE)
    set(LRMOE_NVCC ${CUDAToolkit_NVCC_EXECUTABLE})
  endif()
else()
  set(LRMOE_CUDA_MISSING
      "no CUDA toolkit (set CUDA_HOME, or put nvcc on PATH)")
endif()
