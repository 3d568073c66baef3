// SPDX-License-Identifier: Apache-2.0
//
// NCCL over the fake driver: ranks are threads of one process, or, with a directory that they have
// in common, processes of one rank each. Each has a device of its own; collectives are operations
// on the fake driver's streams that run once every rank's stream has come to its own. Sums are
// taken in rank order, in FP32.
//
// As strict as the real one is, or may be:
//   - a call on a communicator that is not ready, or whose last call is still in progress, is
//     refused; one while it is being aborted, or afterwards, ends the process, as does an abort
//     while a thread is inside a call;
//   - ranks that differ in operation, count, type or root hang, for ever;
//   - an id serves one communicator; two ranks on one device are refused on all ranks;
//   - buffers must be memory of the rank's own device;
//   - an abort releases what that rank's streams wait for, and leaves garbage in its buffers; the
//     other ranks go on waiting until they abort too.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "worker_runtime/cuda/nccl_api.h"

namespace muster::runtime::cuda {

class FakeNccl {
 public:
  struct Options {
    int version = 22809;
    int initial_polls = 2;       // questions that a new communicator answers with "in progress"
    int launch_polls = 0;        // … and every collective
    std::string directory = {};  // between processes; the driver's `alone` is then false
    int spoils = -1;             // this rank gets all-reduces whose first number is wrong
  };

  // One at a time. REQUIRES: a FakeDriver exists as long as it does.
  explicit FakeNccl(Options options);
  FakeNccl() : FakeNccl(Options()) {}
  ~FakeNccl();
  FakeNccl(const FakeNccl&) = delete;
  FakeNccl& operator=(const FakeNccl&) = delete;

  NcclApi api() const;

  // From its `nth` collective (from 1) on, `rank`'s communicator has this asynchronous error, and
  // its part in that collective never runs.
  void fail_at(int rank, int nth, NcclResult error);
  // `rank`'s `nth` collective stays in progress and never reaches its stream.
  void never_launch(int rank, int nth);
  // `rank`'s communicator never becomes ready, nor does anybody else's.
  void never_ready(int rank);
  // `rank`'s next calls of collectives do not return until release(): a thread stuck in NCCL.
  void hold_calls(int rank);
  // `rank`'s communicator is not made, or not destroyed, until release(): the calls sit there.
  void hold_init(int rank);
  void hold_destroy(int rank);
  // Aborts do not return until release().
  void hold_aborts();
  void release();
  // Blocks until so many aborts have begun.
  void wait_for_aborts(std::size_t count);

  std::size_t alive() const;  // communicators that were neither destroyed nor aborted
  std::size_t aborts() const;
  int scalable_ids() const;  // of the last ncclCommInitRankScalable

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace muster::runtime::cuda
