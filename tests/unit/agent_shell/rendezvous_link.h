// SPDX-License-Identifier: Apache-2.0
//
// A server in the same process: the real rendezvous machine behind a ServerLink, on one io loop.
// What the launcher's embedded server does with a journal, a store and gRPC for other nodes, less
// those three.
//
// Thread rule: io thread only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/shell/server_link.h"
#include "launcher/rendezvous/core/rendezvous.h"
#include "proto/base/events.h"

namespace muster::testing {

class LocalServer {
 public:
  explicit LocalServer(boost::asio::io_context& io);
  ~LocalServer();
  LocalServer(const LocalServer&) = delete;
  LocalServer& operator=(const LocalServer&) = delete;

  // A link to this server; may outlive it, and is then down.
  std::unique_ptr<agent::ServerLink> link();

  // Breaks every stream; until `refuse(false)` new ones fail too.
  void cut();
  void refuse(bool refused);

  const std::vector<JobEvent>& events() const;
  const std::optional<Outcome>& outcome() const;  // once JobOver came
  // Called with each event of the job, from inside the server's step.
  void on_event(std::function<void(const JobEvent&)> heard);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace muster::testing
