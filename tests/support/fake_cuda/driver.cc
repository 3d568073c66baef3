// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_cuda/driver.h"

#include <new>

#include "proto/base/check.h"
#include "tests/support/fake_cuda/state.h"

namespace muster::runtime::cuda {

FakeDriver::FakeDriver(Options options) : state_(std::make_unique<State>(options)) {
  MUSTER_CHECK(fake_driver == nullptr);
  fake_driver = state_.get();
  fake_context = nullptr;
  DriverApi& api = state_->api;
  api.library = "fake";
  add_device_calls(api);
  add_graph_calls(api);
  add_launch_calls(api);
  add_memory_calls(api);
  add_stream_calls(api);
#define MUSTER_PLAYED(name, ...) MUSTER_CHECK(api.name != nullptr);
  MUSTER_CU_DRIVER(MUSTER_PLAYED)
#undef MUSTER_PLAYED
}

FakeDriver::~FakeDriver() {
  for (CUstream_st* stream : state_->streams)
    delete stream;
  for (CUevent_st* event : state_->events)
    delete event;
  for (CUmod_st* module : state_->modules)
    delete module;
  for (CUgraph_st* graph : state_->graphs)
    delete graph;
  for (CUgraphExec_st* exec : state_->execs)
    delete exec;
  for (const auto& [memory, allocation] : state_->allocations)
    ::operator delete (memory, std::align_val_t{256});
  fake_driver = nullptr;
}

const DriverApi& FakeDriver::api() const {
  return state_->api;
}

const std::vector<DeviceImage>& FakeDriver::images() {
  static const std::vector<DeviceImage> images{{"fake", kFakeImage}};
  return images;
}

std::vector<std::string> FakeDriver::log() const {
  const Lock lock(state_->mutex);
  return state_->ran;
}

void FakeDriver::clear_log() {
  const Lock lock(state_->mutex);
  state_->ran.clear();
}

std::vector<std::string> FakeDriver::waits() const {
  const Lock lock(state_->mutex);
  return state_->waits;
}

std::size_t FakeDriver::alive() const {
  const Lock lock(state_->mutex);
  return state_->streams.size() + state_->events.size() + state_->modules.size() +
         state_->allocations.size() + state_->graphs.size() + state_->execs.size();
}

void FakeDriver::fail(const std::string& function, CuResult result) {
  const Lock lock(state_->mutex);
  state_->failures[function] = result;
}

}  // namespace muster::runtime::cuda
