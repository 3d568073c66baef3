// SPDX-License-Identifier: Apache-2.0
//
// Finds the server of a multi-node job, or becomes it: gathers the facts that
// rendezvous::decide_hosting asks for, and does what it says, until one of its final answers.
// Names are resolved anew before every look (a pod's name appears when it appears), in a helper
// thread, because the resolver blocks.
//
// Thread rule: the io thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>

#include "launcher/commands/options.h"
#include "launcher/rendezvous/shell/server.h"
#include "proto/base/time.h"

namespace muster::launcher {

struct ProbeOptions {
  Endpoint endpoint;
  std::string advertise_addr;  // as given; empty: not
  bool explicit_rank_zero = false;
  std::optional<bool> is_host;
  transport::Credentials credentials;  // a server that does not take them ends the probe
  Duration join_timeout = 600s;
  Duration report_every = 10s;
  std::string server_instance;  // of the server that make_server makes
  // kAborted: something that it needs is held by somebody who may be this job's server; it is asked
  // again after another look. Any other error is final: this process could host, and may not.
  std::function<absl::StatusOr<std::unique_ptr<rendezvous::RendezvousServer>>()> make_server;
  std::function<void(const std::string&)> say;  // a line for people while waiting
};

struct ProbeResult {
  // Set: this process hosts the server, which listens. Else, with exit_code 0: join the endpoint.
  std::unique_ptr<rendezvous::RendezvousServer> server;
  std::string reached_addr;  // numeric address at which the endpoint was reached
  int exit_code = 0;         // refused: why, in `text`
  std::string text;
};

class EndpointProbe {
 public:
  EndpointProbe(boost::asio::io_context& io, ProbeOptions options);
  ~EndpointProbe();  // cancels; nothing is called afterwards
  EndpointProbe(const EndpointProbe&) = delete;
  EndpointProbe& operator=(const EndpointProbe&) = delete;

  // `done` is called once, on the io thread. It may destroy the probe.
  void start(std::function<void(ProbeResult)> done);

  // One line: what was tried, what answered.
  std::string describe() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace muster::launcher
