# Kernels through the host executor: any machine runs them.
muster_test(cuda_kernels_test LABEL unit TIMEOUT 300
  SOURCES unit/cuda/elementwise_test.cc unit/cuda/mma_test.cc
  LINK muster::cuda_kernels muster::cpu)
target_compile_options(cuda_kernels_test PRIVATE -O2 -ffp-contract=off)
