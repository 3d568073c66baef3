// SPDX-License-Identifier: Apache-2.0
//
// What an agent machine must never do, whatever its server says; looked at after every step. It
// keeps the truth about the stream, the master port and the processes beside the machine.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/agent.h"
#include "tests/fuzz/input.h"

namespace muster::fuzz {

// One worker as the node knows it.
struct Process {
  Generation generation = kNoGeneration;
  bool spawned = false;
  bool ended = false;
  bool gone = false;
  bool given_up = false;  // nothing ends it
};

enum class Stream : std::uint8_t { kClosed, kOpening, kUp };

class AgentJudge {
 public:
  explicit AgentJudge(const agent::AgentConfig& config) : config_(config) {}

  void stepped(const agent::Event& event, const std::vector<agent::Action>& actions);

  // The shell and the processes change these as events are made.
  Stream stream = Stream::kClosed;
  std::vector<Process> processes;
  std::uint32_t ports_asked = 0;

  bool finished() const { return finished_; }
  // The last things the machine asked for, for the answers to them.
  Attempt attempt_asked = 0;
  std::uint64_t heartbeat_sent = 0;

 private:
  void on(const agent::Connect&);
  void on(const agent::Disconnect&);
  void on(const agent::Send& send);
  void on(const agent::HoldMasterPort& hold);
  void on(const agent::ReleaseMasterPort&);
  void on(const agent::StartWorkers& start);
  void on(const agent::SignalWorker& signal);
  void on(const agent::WriteStopFile& file);
  void on(const agent::SuspendGuardian&) {}
  void on(const agent::ResumeGuardian&) {}
  void on(const agent::StartFaultClock&) {}
  void on(const agent::AwaitDevices&) {}
  void on(const agent::CaptureStacks&) {}
  void on(const agent::Emit&) {}
  void on(const agent::Say&) {}
  void on(const agent::SayLingering&) {}
  void on(const agent::NoteFirstCause&) {}
  void on(const agent::Finish& finish);
  void before(const agent::Event& event);
  void check_foreign(const agent::Event& event, const std::vector<agent::Action>& actions) const;

  const agent::AgentConfig& config_;
  bool finished_ = false;
  bool accepted_ = false;  // on this stream
  bool port_held_ = false;
  std::uint64_t orders_ = 0;  // StopOrders, and streams on which they may be repeated
  std::uint64_t confirmed_ = 0;
  Incarnation incarnation_ = 0;  // as it says itself
  // The newest generation that it started, of each life that a server gave it in a run. A server
  // that gives it another one took it for lost: it is a new node to that server, and forgets.
  std::map<std::pair<RunId, Incarnation>, Generation> newest_;
};

}  // namespace muster::fuzz
