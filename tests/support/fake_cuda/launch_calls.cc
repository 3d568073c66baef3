// SPDX-License-Identifier: Apache-2.0
//
// Modules, functions and launches.
#include "tests/support/fake_cuda/state.h"

namespace muster::runtime::cuda {
namespace {

using State = FakeDriver::State;

CuResult module_load(CuModule* module, const void* image) {
  return in_context("cuModuleLoadData", [&](State& state, Lock&) {
    if (std::memcmp(image, kFakeImage, sizeof(kFakeImage)) != 0) return kCuInvalidImage;
    if (state.options.capability < 80) return kCuNoBinaryForGpu;
    *module = new CUmod_st;
    state.modules.insert(*module);
    return kCuSuccess;
  });
}
CuResult module_unload(CuModule module) {
  return in_context("cuModuleUnload", [&](State& state, Lock& lock) {
    if (state.modules.erase(module) == 0) return kCuInvalidHandle;
    state.drain_all(lock, fake_context->device);
    delete module;
    return kCuSuccess;
  });
}
CuResult module_function(CuFunction* function, CuModule module, const char* name) {
  return in_context("cuModuleGetFunction", [&](State& state, Lock&) {
    if (!state.modules.contains(module)) return kCuInvalidHandle;
    const auto kernel = host_kernels().find(name);
    if (kernel == host_kernels().end()) return kCuNotFound;
    std::unique_ptr<CUfunc_st>& made = state.functions[name];
    if (made == nullptr) made = std::make_unique<CUfunc_st>(CUfunc_st{name, kernel->second});
    *function = made.get();
    return kCuSuccess;
  });
}
CuResult function_attribute(CuFunction function, int attribute, int value) {
  return in_context("cuFuncSetAttribute", [&](State&, Lock&) {
    if (attribute != kCuFunctionMaxDynamicShared || value < 0 || value > 227 << 10) {
      return kCuInvalidValue;
    }
    function->allowed_shared = static_cast<std::size_t>(value);
    return kCuSuccess;
  });
}
CuResult launch(CuFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                CuStream stream, void** parameters, void** extra) {
  return on_stream("cuLaunchKernel", stream, [&](State& state, Lock& lock) {
    const HostKernel& kernel = function->kernel;
    const bool sized = grid_x > 0 && grid_x <= 0x7fffffffU && grid_y > 0 && grid_y <= 65535 &&
                       grid_z == 1 && block_x == kernel.threads && block_y == 1 && block_z == 1;
    if (!sized || shared != kernel.shared || shared > function->allowed_shared ||
        extra != nullptr) {
      return kCuInvalidValue;
    }
    const auto* first = static_cast<const std::byte*>(parameters[0]);
    // Aligned as the arguments are: vector<std::max_align_t> would be no more than this.
    std::vector<std::byte> args(first, first + kernel.args_size);
    Operation operation;
    operation.name = function->name;
    operation.run = [run = kernel.run, grid = Grid{grid_x, grid_y}, args = std::move(args)] {
      run(grid, args.data());
    };
    state.add(lock, stream, std::move(operation));
    return kCuSuccess;
  });
}

}  // namespace

void add_launch_calls(DriverApi& api) {
  api.cuModuleLoadData = module_load;
  api.cuModuleUnload = module_unload;
  api.cuModuleGetFunction = module_function;
  api.cuFuncSetAttribute = function_attribute;
  api.cuLaunchKernel = launch;
}

}  // namespace muster::runtime::cuda
