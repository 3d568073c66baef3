// SPDX-License-Identifier: Apache-2.0
//
// The workers' key-value service on this node: a loopback port that speaks muster.v1.Store and
// passes every request on over the agent's stream. The port is open from the start (MUSTER_STORE
// must be known before workers exist); the gRPC server behind it is created when the first worker
// connects.
//
// A request is answered exactly once: by the server, or kStale when its generation is not the
// current one or ends, or "unavailable" when its deadline passes or the link stays away. While
// the link is down set, get and delete wait and are sent again; add is not, since nobody can know
// whether it was counted.
//
// Thread rule: every member runs on the io thread.
#pragma once

#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <boost/asio/io_context.hpp>

#include "agent/shell/server_link.h"
#include "proto/base/ids.h"
#include "proto/base/store.h"

namespace muster::agent {

class StoreProxy {
 public:
  // `token`: what workers must present; the caller writes it to the 0600 token file.
  StoreProxy(boost::asio::io_context& io, JobId job, std::string token);
  ~StoreProxy();  // pending requests are answered "unavailable"
  StoreProxy(const StoreProxy&) = delete;
  StoreProxy& operator=(const StoreProxy&) = delete;

  // Binds 127.0.0.1:0 and returns "127.0.0.1:port", the value of MUSTER_STORE.
  absl::StatusOr<std::string> listen();

  // The link is open and the server accepted this agent (JoinAccepted was seen). `link` is used
  // until link_down().
  void link_up(ServerLink* link);
  void link_down();
  // From ServerLink::Callbacks::store_said.
  void store_said(const StoreReply& reply);

  // Workers of `generation` are about to start / it is over: its pending requests and all later
  // ones are answered stale.
  void generation_started(Generation generation);
  void generation_ended();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace muster::agent
