# Kernels through the host executor: any machine runs them.
muster_test(cuda_kernels_test LABEL unit TIMEOUT 300
  SOURCES unit/cuda/attention_test.cc unit/cuda/elementwise_test.cc unit/cuda/mma_test.cc
          unit/cuda/norm_test.cc unit/cuda/loss_test.cc unit/cuda/embedding_test.cc
          unit/cuda/optimizer_test.cc unit/cuda/buckets_test.cc
  LINK muster::cuda_kernels muster::cpu_kernels muster::collectives)
target_compile_options(cuda_kernels_test PRIVATE -O2 -ffp-contract=off)

set(cuda_device_sources unit/cuda/device_test.cc unit/cuda/images_test.cc
    unit/cuda/products_test.cc)
if(MUSTER_CUDA_HEADERS)
  list(APPEND cuda_device_sources unit/cuda/signatures_test.cc)
endif()
muster_test(cuda_device_test LABEL unit SOURCES ${cuda_device_sources} LINK muster::fake_cuda)
if(MUSTER_NVCC)
  target_compile_definitions(cuda_device_test PRIVATE MUSTER_HAS_NVCC)
endif()
if(MUSTER_CUDA_HEADERS)
  target_include_directories(cuda_device_test SYSTEM PRIVATE ${MUSTER_CUDA_HEADERS})
endif()

# NCCL without a network: ranks are threads, collectives run on the fake driver's streams.
muster_test(cuda_nccl_test LABEL unit
  SOURCES unit/cuda/nccl_api_test.cc unit/cuda/nccl_communicator_test.cc
          unit/cuda/nccl_compatibility_test.cc unit/cuda/nccl_core_test.cc
          unit/cuda/nccl_faults_test.cc unit/cuda/nccl_meeting_test.cc
          unit/cuda/nccl_overlap_test.cc unit/cuda/nccl_positions_test.cc
          unit/cuda/nccl_settings_test.cc
  LINK muster::fake_nccl)

muster_test(cuda_model_test LABEL unit TIMEOUT 300
  SOURCES unit/cuda/device_gpt_test.cc LINK muster::cuda_model muster::model muster::fake_cuda gomp)

# Whole runs on devices that are not there.
muster_test(cuda_engine_test LABEL "unit;onednn" TIMEOUT 300
  SOURCES unit/cuda/device_choice_test.cc unit/cuda/device_engine_test.cc
          unit/cuda/device_setup_test.cc unit/cuda/staged_exchange_test.cc
  LINK muster::cuda_setup muster::fake_nccl gomp)

# The benchmark of collectives, on the CPU and on such devices.
muster_test(bench_test LABEL unit
  SOURCES unit/bench/bench_flags_test.cc unit/bench/figures_test.cc unit/bench/pattern_test.cc
          unit/bench/report_test.cc unit/bench/sweep_test.cc
  LINK muster::train_program muster::bench muster::fake_nccl muster::json gomp)

# muster-train itself on such devices, as processes under `muster run`.
add_executable(muster-train-fake support/fake_cuda/fake_train.cc)
target_link_libraries(muster-train-fake PRIVATE muster::train_program muster::fake_nccl gomp)
