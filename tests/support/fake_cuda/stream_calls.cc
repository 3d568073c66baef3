// SPDX-License-Identifier: Apache-2.0
//
// Streams and events.
#include "tests/support/fake_cuda/state.h"

namespace muster::runtime::cuda {
namespace {

using State = FakeDriver::State;

CuResult stream_create(CuStream* stream, unsigned) {
  return in_context("cuStreamCreate", [&](State& state, Lock&) {
    *stream = new CUstream_st;
    (*stream)->number = ++state.last_stream;
    (*stream)->device = fake_context->device;
    state.streams.insert(*stream);
    return kCuSuccess;
  });
}
CuResult stream_destroy(CuStream stream) {
  return on_stream("cuStreamDestroy", stream, [&](State& state, Lock& lock) {
    state.drain(lock, stream);
    state.streams.erase(stream);
    delete stream;
    return kCuSuccess;
  });
}
CuResult stream_query(CuStream stream) {
  return on_stream("cuStreamQuery", stream, [&](State& state, Lock& lock) {
    // Asking again and again must get there.
    if (!stream->running) state.advance(lock, stream, State::Patience::kTry);
    return stream->queue.empty() && !stream->running ? kCuSuccess : kCuNotReady;
  });
}
CuResult stream_synchronize(CuStream stream) {
  return on_stream("cuStreamSynchronize", stream, [&](State& state, Lock& lock) {
    state.waits.emplace_back("cuStreamSynchronize");
    state.drain(lock, stream);
    return kCuSuccess;
  });
}
CuResult stream_wait(CuStream stream, CuEvent event, unsigned) {
  return on_stream("cuStreamWaitEvent", stream, [&](State& state, Lock& lock) {
    if (!state.events.contains(event)) return kCuInvalidHandle;
    Operation operation;
    operation.waits_for = event;
    operation.recorded_on = event->stream;
    operation.count = event->recorded;
    state.add(lock, stream, std::move(operation));
    return kCuSuccess;
  });
}
CuResult event_create(CuEvent* event, unsigned flags) {
  return in_context("cuEventCreate", [&](State& state, Lock&) {
    if ((flags & ~kCuEventDisableTiming) != 0) return kCuInvalidValue;
    *event = new CUevent_st;
    (*event)->timed = flags == 0;
    state.events.insert(*event);
    return kCuSuccess;
  });
}
CuResult event_destroy(CuEvent event) {
  return in_context("cuEventDestroy", [&](State& state, Lock&) {
    if (state.events.erase(event) == 0) return kCuInvalidHandle;
    state.dead_events.emplace_back(event);
    return kCuSuccess;
  });
}
CuResult event_record(CuEvent event, CuStream stream) {
  return on_stream("cuEventRecord", stream, [&](State& state, Lock& lock) {
    if (!state.events.contains(event)) return kCuInvalidHandle;
    event->stream = stream;
    Operation operation;
    operation.records = event;
    operation.count = ++event->recorded;
    state.add(lock, stream, std::move(operation));
    return kCuSuccess;
  });
}
CuResult event_query(CuEvent event) {
  return in_context("cuEventQuery", [&](State& state, Lock& lock) {
    if (!state.events.contains(event)) return kCuInvalidHandle;
    if (event->done < event->recorded && !event->stream->running) {
      state.advance(lock, event->stream, State::Patience::kTry);
    }
    return event->done < event->recorded ? kCuNotReady : kCuSuccess;
  });
}
CuResult event_synchronize(CuEvent event) {
  return in_context("cuEventSynchronize", [&](State& state, Lock& lock) {
    if (!state.events.contains(event)) return kCuInvalidHandle;
    if (event->done < event->recorded) state.waits.emplace_back("cuEventSynchronize");
    state.finish(lock, event, event->stream, event->recorded);
    return kCuSuccess;
  });
}
CuResult event_elapsed(float* ms, CuEvent begin, CuEvent end) {
  return in_context("cuEventElapsedTime", [&](State& state, Lock&) {
    if (!state.events.contains(begin) || !state.events.contains(end)) return kCuInvalidHandle;
    if (!begin->timed || !end->timed || begin->recorded == 0 || end->recorded == 0) {
      return kCuInvalidHandle;
    }
    if (begin->done < begin->recorded || end->done < end->recorded) return kCuNotReady;
    *ms = 0.0F;
    return kCuSuccess;
  });
}

}  // namespace

void add_stream_calls(DriverApi& api) {
  api.cuStreamCreate = stream_create;
  api.cuStreamDestroy = stream_destroy;
  api.cuStreamQuery = stream_query;
  api.cuStreamSynchronize = stream_synchronize;
  api.cuStreamWaitEvent = stream_wait;
  api.cuEventCreate = event_create;
  api.cuEventDestroy = event_destroy;
  api.cuEventRecord = event_record;
  api.cuEventQuery = event_query;
  api.cuEventSynchronize = event_synchronize;
  api.cuEventElapsedTime = event_elapsed;
}

}  // namespace muster::runtime::cuda
