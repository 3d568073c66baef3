// SPDX-License-Identifier: Apache-2.0
//
// What an operator may ask of a job that runs (muster stop, scale, drain, restart), and the answer.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "proto/base/ids.h"

namespace muster::rendezvous {

// End it on all nodes.
struct StopJob {};
// From now on it has MIN to MAX nodes: the surplus become spares, spares become members.
struct ScaleJob {
  std::uint32_t min_nodes = 1;
  std::uint32_t max_nodes = 1;
};
// Go on without this node; its agent ends.
struct DrainNode {
  NodeName node;
};
// Begin a new generation of the same nodes.
struct RestartJob {};

using Order = std::variant<StopJob, ScaleJob, DrainNode, RestartJob>;

struct OrderAnswer {
  enum class Kind : std::uint8_t {
    kDone,     // it is being done
    kUnknown,  // no such job or node, or the job is over
    kRefused   // it cannot be done now
  };
  Kind kind = Kind::kDone;
  std::string text;  // one line

  bool accepted() const { return kind == Kind::kDone; }
};

}  // namespace muster::rendezvous
