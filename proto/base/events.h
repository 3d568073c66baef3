// SPDX-License-Identifier: Apache-2.0
//
// The events of contracts §5 as typed data. Shells render them as JSON lines and add schema, ts,
// seq, job and run; the common optional fields stand in JobEvent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "proto/base/ids.h"
#include "proto/base/job.h"
#include "proto/base/time.h"

namespace muster {

namespace event {

struct JobStarted {
  std::uint32_t min_nodes = 0;
  std::uint32_t max_nodes = 0;
  std::uint32_t max_restarts = 0;
  bool operator==(const JobStarted&) const = default;
};
struct NodeJoined {
  std::string host;
  std::string addr;
  std::uint32_t slots = 0;
  bool spare = false;
  Incarnation incarnation = 0;
  bool operator==(const NodeJoined&) const = default;
};
struct NodeLeft {
  enum class Why : std::uint8_t { kLeave, kLost, kEvicted, kQuarantined, kPreempted, kDrained };
  Why why = Why::kLeave;
  bool operator==(const NodeLeft&) const = default;
};
struct GenerationFormed {
  std::uint32_t world_size = 0;
  std::vector<MemberRanks> nodes;
  std::string master_addr;
  std::uint16_t master_port = 0;
  FormReason reason = FormReason::kStart;
  bool operator==(const GenerationFormed&) const = default;
};
struct WorkerStarted {
  std::string argv0;
  bool operator==(const WorkerStarted&) const = default;
};
struct WorkerEnded {  // "worker_exited"
  std::optional<int> exit_code;
  std::optional<int> signal;
  bool torn_down = false;
  std::uint64_t max_rss_bytes = 0;
  Duration run{0};
  std::string stacks;  // path on its node, captured before it was killed; empty: none
  bool operator==(const WorkerEnded&) const = default;
};
struct GenerationRunning {
  Duration form{0};
  Duration spawn{0};
  bool operator==(const GenerationRunning&) const = default;
};
struct GenerationFailed {
  Failure first_cause;
  std::vector<Failure> victims;
  bool operator==(const GenerationFailed&) const = default;
};
struct RestartScheduled {
  std::uint32_t restarts_used = 0;
  std::uint32_t max_restarts = 0;
  bool charged = false;
  Duration delay{0};
  bool operator==(const RestartScheduled&) const = default;
};
struct Recovered {
  Duration detect{0};
  Duration stop{0};
  Duration form{0};
  Duration spawn{0};
  Duration total{0};
  std::optional<Duration> first_progress;
  bool operator==(const Recovered&) const = default;
};
struct ChaosHit {      // "chaos_fired"
  std::string fault;   // compact JSON as in the plan
  std::string target;  // "rank 1", "node b"
  bool operator==(const ChaosHit&) const = default;
};
struct ChaosMissed {  // "chaos_unfired"
  std::string fault;
  std::string target;
  bool operator==(const ChaosMissed&) const = default;
};
struct StateLost {
  std::string reason;
  bool operator==(const StateLost&) const = default;
};
struct ServerRecovered {  // a server started again and knows this run from its journal
  std::string reason;
  bool operator==(const ServerRecovered&) const = default;
};
struct NodeQuarantined {
  std::int64_t until_us = 0;  // wall clock [us since 1970, UTC]
  std::string reason;
  bool operator==(const NodeQuarantined&) const = default;
};
struct ServerGoing {  // "server_leaving"
  std::string reason;
  bool operator==(const ServerGoing&) const = default;
};
struct JobFinished {
  Outcome outcome;
  bool operator==(const JobFinished&) const = default;
};

}  // namespace event

using EventBody =
    std::variant<event::JobStarted, event::NodeJoined, event::NodeLeft, event::GenerationFormed,
                 event::WorkerStarted, event::WorkerEnded, event::GenerationRunning,
                 event::GenerationFailed, event::RestartScheduled, event::Recovered,
                 event::ChaosHit, event::ChaosMissed, event::StateLost, event::ServerRecovered,
                 event::NodeQuarantined, event::ServerGoing, event::JobFinished>;

struct JobEvent {
  std::optional<Generation> generation;
  std::optional<NodeName> node;
  std::optional<std::uint32_t> rank;
  std::optional<std::uint32_t> local_rank;
  std::optional<std::int64_t> pid;
  EventBody body;
  bool operator==(const JobEvent&) const = default;
};

// "job_started", "worker_exited", …: the value of "event" in the file.
const char* event_name(const EventBody& body);

}  // namespace muster
