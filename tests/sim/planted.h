// SPDX-License-Identifier: Apache-2.0
//
// Bugs on purpose, one at a time: does the simulator notice? They stand at the border of the
// machines, between what a machine says and what the world sees of it, so that no line of a core
// is there for them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/agent.h"
#include "launcher/rendezvous/core/rendezvous.h"
#include "tests/sim/checks.h"

namespace muster::sim {

class Planted;

struct Bug {
  const char* name;
  const char* breaks;  // how the text of the failure begins
  // Changes or takes away what the server hears.
  void (*hears)(Planted&, std::optional<rendezvous::Event>&) = nullptr;
  // Changes what it orders …
  void (*orders)(Planted&, std::vector<rendezvous::Action>&) = nullptr;
  // … and, in the same way, all that it knows.
  void (*knows)(Planted&, std::vector<rendezvous::RunRecord>&) = nullptr;
  // Changes what an agent does.
  void (*does)(Planted&, const NodeTruth&, const agent::Event&,
               std::vector<agent::Action>&) = nullptr;
};

const std::vector<Bug>& bugs();
const Bug* find_bug(const std::string& name);

class Planted {
 public:
  explicit Planted(const std::string& name) : bug_(find_bug(name)) {}

  bool changes_what_is_heard() const { return bug_ != nullptr && bug_->hears != nullptr; }
  void hears(std::optional<rendezvous::Event>& event) {
    if (bug_ != nullptr && bug_->hears != nullptr) bug_->hears(*this, event);
  }
  void orders(std::vector<rendezvous::Action>& actions) {
    if (bug_ != nullptr && bug_->orders != nullptr) bug_->orders(*this, actions);
  }
  void knows(std::vector<rendezvous::RunRecord>& records) {
    if (bug_ != nullptr && bug_->knows != nullptr) bug_->knows(*this, records);
  }
  void does(const NodeTruth& node, const agent::Event& event, std::vector<agent::Action>& actions) {
    if (bug_ != nullptr && bug_->does != nullptr) bug_->does(*this, node, event, actions);
  }

  // What a bug remembers.
  std::uint64_t count = 0;
  NodeName whom;
  struct Forged {
    rendezvous::Event event;
    bool known = false;  // the model hears of it too
  };
  std::vector<Forged> forged;  // heard next, though nobody said it
  std::vector<std::pair<RunId, rendezvous::NodeRecord>> kept;
  std::map<std::size_t, agent::StartWorkers> started;

 private:
  const Bug* bug_;
};

}  // namespace muster::sim
