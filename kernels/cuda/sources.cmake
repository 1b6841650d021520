# The sources of the CUDA backend, as the module is made of them and as the
# tests compile them for the SIMT emulator.
set(LRMOE_CUDA_SOURCES
    activation.cu engine.cu error.cu expert.cu expert_alpha.cu
    expert_backward.cu expert_forward.cu fused.cu gather.cu gather_sum.cu
    gemm_cublas.cu gin.cu labels.cu lists.cu memory.cu module.cu numbers.cu
    operands.cu plan.cu range.cu select.cu select_long.cu sums.cu words.cu)
list(TRANSFORM LRMOE_CUDA_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
