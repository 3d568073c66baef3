// SPDX-License-Identifier: Apache-2.0
//
// Captures and graphs.
#include "proto/base/check.h"
#include "tests/support/fake_cuda/state.h"

namespace muster::runtime::cuda {
namespace {

using State = FakeDriver::State;

CuResult begin_capture(CuStream stream, int mode) {
  return on_stream("cuStreamBeginCapture", stream, [&](State&, Lock&) {
    if (mode != kCuCaptureThreadLocal) return kCuInvalidValue;
    if (stream->capture != nullptr || fake_capturing != nullptr) return kCuIllegalState;
    stream->capture = std::make_unique<CUgraph_st>();
    fake_capturing = stream;
    return kCuSuccess;
  });
}
CuResult end_capture(CuStream stream, CuGraph* graph) {
  return on_stream("cuStreamEndCapture", stream, [&](State& state, Lock&) {
    *graph = nullptr;
    if (stream->capture == nullptr || fake_capturing != stream) return kCuIllegalState;
    const std::unique_ptr<CUgraph_st> ended = std::exchange(stream->capture, nullptr);
    fake_capturing = nullptr;
    if (ended->broken) return kCuCaptureInvalidated;
    *graph = new CUgraph_st(*ended);
    state.graphs.insert(*graph);
    return kCuSuccess;
  });
}
CuResult instantiate(CuGraphExec* exec, CuGraph graph, CuGraphFlags flags) {
  return in_context("cuGraphInstantiateWithFlags", [&](State& state, Lock&) {
    if (flags != 0 || !state.graphs.contains(graph)) return kCuInvalidValue;
    *exec = new CUgraphExec_st{graph->operations};
    state.execs.insert(*exec);
    return kCuSuccess;
  });
}
CuResult launch_graph(CuGraphExec exec, CuStream stream) {
  return on_stream("cuGraphLaunch", stream, [&](State& state, Lock& lock) {
    if (!state.execs.contains(exec)) return kCuInvalidValue;
    MUSTER_CHECK(stream->capture == nullptr);  // graphs inside graphs are not played
    Operation begins;
    begins.name = "graph of " + std::to_string(exec->operations.size());
    state.add(lock, stream, std::move(begins));
    // Queueing may let go of the lock, and the graph may be given back as soon as it was launched.
    const std::vector<Operation> operations = exec->operations;
    for (const Operation& operation : operations)
      state.add(lock, stream, operation);
    return kCuSuccess;
  });
}
CuResult destroy_exec(CuGraphExec exec) {
  return in_context("cuGraphExecDestroy", [&](State& state, Lock&) {
    if (state.execs.erase(exec) == 0) return kCuInvalidValue;
    delete exec;
    return kCuSuccess;
  });
}
CuResult destroy_graph(CuGraph graph) {
  return in_context("cuGraphDestroy", [&](State& state, Lock&) {
    if (state.graphs.erase(graph) == 0) return kCuInvalidValue;
    delete graph;
    return kCuSuccess;
  });
}

}  // namespace

void add_graph_calls(DriverApi& api) {
  api.cuStreamBeginCapture = begin_capture;
  api.cuStreamEndCapture = end_capture;
  api.cuGraphInstantiateWithFlags = instantiate;
  api.cuGraphLaunch = launch_graph;
  api.cuGraphExecDestroy = destroy_exec;
  api.cuGraphDestroy = destroy_graph;
}

}  // namespace muster::runtime::cuda
