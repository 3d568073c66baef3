// SPDX-License-Identifier: Apache-2.0
//
// One rank's training run, from its configuration to its exit code. A library, so that several
// ranks can run as threads of one test; everything that belongs to a process (signals, standard
// output, the progress file) is handed in.
//
// A step: this rank's micro-batches forward and backward; the gradient summed over all ranks; one
// control all-reduce, out of which every rank decides the same: skip or update, next loss scale,
// stop. Then unscale, clip, AdamW. `step` counts attempts, `updates` applied ones; skipped steps
// consume their samples; learning rate and Adam's bias correction follow `updates`.
//
// Thread rule: train() runs one rank on the calling thread; the callbacks are called from it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "proto/base/ids.h"
#include "worker_runtime/checkpoint/file_system.h"
#include "worker_runtime/checkpoint/manifest.h"
#include "worker_runtime/collectives/collectives.h"
#include "worker_runtime/train/config.h"
#include "worker_runtime/train/engine.h"
#include "worker_runtime/train/resume.h"

namespace muster::runtime {

// muster-train's exit codes.
enum TrainExit : int {
  kExitDone = 0,
  kExitConfiguration = 2,
  kExitInternal = 70,
  kExitNumerics = 80,
  kExitPeerLost = 81,
  kExitMismatch = 82,
  kExitDeadline = 83,
  kExitStorage = 84,
  kExitDevice = 85,
  kExitWrongResult = 86,
  kExitStopped = 143,
};

struct ProgressReport {
  std::uint64_t step = 0;
  double loss = 0;
  std::uint64_t samples = 0;
  std::uint64_t checkpoint_step = 0;  // the last that this rank knows of; 0: none
  const char* state = "";             // "training", "saving", "evaluating"
};

// Who watches over the process while the rank works: the answers to signals and to waiting too
// long. The calls mark what the rank is at. The default watches nothing.
class Overseer {
 public:
  virtual ~Overseer() = default;
  // Somebody asked this rank to finish its step, save and end.
  virtual bool stop_requested() { return false; }
  virtual void collective_begins() {}
  virtual void collective_ends() {}
  virtual void storage_begins() {}
  virtual void storage_ends() {}
  // Rank 0 is at the storage: the next collective may take as long as that.
  virtual void awaits_storage() {}
  // All ranks agreed to end: from here on nobody needs to hurry this one.
  virtual void finishing() {}
};

struct TrainRuntime {
  explicit TrainRuntime(Collectives& collectives) : group(collectives) {}

  Collectives& group;
  RunId run;          // as the launcher named it; else unique to this start
  std::string nonce;  // unique to this process
  BuildFacts build;
  ResumeChoice resume;
  EngineMaker make_engine = make_cpu_engine;
  FileSystem* files = &posix_file_system();
  Overseer* overseer = nullptr;                  // none: the default
  std::function<void(const std::string&)> line;  // rank 0: one JSON object
  std::function<void(const std::string&)> note;  // one line for people
  std::function<void(const ProgressReport&)> progress;
  // Seams for tests: sees, and may spoil, a micro-batch's gradient; is told the samples it used.
  std::function<void(std::uint64_t step, std::span<float> gradient)> after_backward;
  std::function<void(std::uint64_t first_sample, std::uint64_t count)> consumed;
};

struct TrainResult {
  int exit_code = kExitInternal;
  std::string message;  // why, where the code is not 0 or 143
  int peer = -1;        // the rank that was lost, for kExitPeerLost
  TrainCounters counters;
  std::string param_hash;  // where training ended well or was stopped
};

// Reads the corpus, agrees with the other ranks, resumes, trains, saves.
TrainResult train(const TrainConfig& config, const TrainRuntime& runtime);

}  // namespace muster::runtime
