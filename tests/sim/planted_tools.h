// SPDX-License-Identifier: Apache-2.0
//
// What planted bugs are made of.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "tests/sim/planted.h"

namespace muster::sim::planting {

using Actions = std::vector<rendezvous::Action>;
using AgentActions = std::vector<agent::Action>;
using Heard = std::optional<rendezvous::Event>;
using Records = std::vector<rendezvous::RunRecord>;

template <class Body>
Body* sent(rendezvous::Action& action) {
  auto* send = std::get_if<rendezvous::Send>(&action);
  return send == nullptr ? nullptr : std::get_if<Body>(&send->message.body);
}

template <class Body>
Body* told(rendezvous::Action& action) {
  auto* emit = std::get_if<rendezvous::Emit>(&action);
  return emit == nullptr ? nullptr : std::get_if<Body>(&emit->event.body);
}

template <class Body>
bool said(const rendezvous::Event& event) {
  const auto* message = std::get_if<rendezvous::AgentSaid>(&event);
  return message != nullptr && std::holds_alternative<Body>(message->message.body);
}

template <class Body>
bool read(const agent::Event& event) {
  const auto* message = std::get_if<agent::ServerSaid>(&event);
  return message != nullptr && std::holds_alternative<Body>(message->message.body);
}

template <class Body, class Change>
void each_sent(Actions& actions, Change change) {
  for (rendezvous::Action& action : actions) {
    if (Body* body = sent<Body>(action)) change(*body);
  }
}

template <class Body, class Change>
void each_told(Actions& actions, Change change) {
  for (rendezvous::Action& action : actions) {
    if (Body* body = told<Body>(action)) change(*body);
  }
}

inline void repeat_sent(Actions& actions, bool (*which)(rendezvous::Action&)) {
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (!which(actions[i])) continue;
    const rendezvous::Action again = actions[i];
    actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(i), again);
    ++i;
  }
}

// Lists of planted_rules.cc: what is told wrongly, and rules that are not kept.
std::vector<Bug> told_bugs();
std::vector<Bug> rule_bugs();

}  // namespace muster::sim::planting
