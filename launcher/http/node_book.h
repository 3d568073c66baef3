// SPDX-License-Identifier: Apache-2.0
//
// What a node's probes and metrics say, kept from the events that its agent emits. Pure.
//
// Thread rule: not thread-safe; one owner.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "launcher/http/metrics_text.h"
#include "proto/base/events.h"
#include "proto/base/ids.h"

namespace muster::http {

class NodeBook {
 public:
  // `server`: where it is looked for, for people.
  NodeBook(NodeName node, std::string server);

  void note(const JobEvent& event);
  void set_connected(bool connected) { connected_ = connected; }

  // Empty: this node does what it is there for: its workers run, or it waits as a spare. Otherwise
  // why not, in words.
  std::string unready() const;

  void render(MetricsText& out) const;

 private:
  enum class Stage : std::uint8_t { kLooking, kJoined, kStarting, kRunning, kStopping, kOver };

  void on(const event::JobStarted& event);
  void on(const event::GenerationFormed& event);
  void on(const event::GenerationFailed& event);
  void on(const event::RestartScheduled& event);
  void on(const event::Recovered& event);
  void on(const event::WorkerEnded& event);

  NodeName node_;
  std::string server_;
  Stage stage_ = Stage::kLooking;
  std::string why_;  // kStopping, kOver
  bool connected_ = false;
  bool spare_ = false;

  std::optional<Generation> generation_;
  std::uint32_t world_size_ = 0;
  std::size_t nodes_ = 0;
  std::uint32_t restarts_used_ = 0;
  std::uint32_t max_restarts_ = 0;
  std::int64_t workers_ = 0;
  std::optional<double> goodput_;

  // By label; what never happened has no line, which Prometheus takes for nothing.
  std::map<std::string, std::uint64_t> formed_;    // reason
  std::map<std::string, std::uint64_t> failures_;  // kind
  std::map<std::string, std::uint64_t> exits_;     // how
  std::map<std::string, double> recovery_s_;       // phase, summed
  std::uint64_t recoveries_ = 0;
  double last_recovery_s_ = 0;
};

}  // namespace muster::http
