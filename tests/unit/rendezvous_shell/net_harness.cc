// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/rendezvous_shell/net_harness.h"

#include <future>
#include <utility>

namespace muster::test {

NetAgent::NetAgent(IoThread& thread, int port, transport::Credentials credentials, std::string host,
                   Duration patience)
    : thread_(thread) {
  agent::GrpcLinkOptions options;
  options.host = std::move(host);
  options.port = port;
  options.credentials = std::move(credentials);
  options.connect_timeout = patience;
  thread_.on_io([&] { link_ = std::make_unique<agent::GrpcLink>(thread_.io(), options); });
}

NetAgent::~NetAgent() {
  thread_.on_io([&] { link_.reset(); });
}

bool NetAgent::open() {
  thread_.on_io([&] {
    agent::ServerLink::Callbacks callbacks;
    callbacks.up = [this] { up.put(true); };
    callbacks.said = [this](ServerMessage message) { heard.said.put(std::move(message)); };
    callbacks.down = [this](std::string reason, bool speaks_muster) {
      down.put({std::move(reason), speaks_muster});
      up.put(false);
    };
    callbacks.store_said = [this](StoreReply reply) {
      if (on_store) return on_store(std::move(reply));
      heard.store.put(std::move(reply));
    };
    link_->open(std::move(callbacks));
  });
  return up.next().value_or(false);
}

void NetAgent::send(AgentMessage message) {
  thread_.on_io([&] { link_->send(std::move(message)); });
}

void NetAgent::store(StoreRequest request) {
  thread_.on_io([&] { link_->store(std::move(request)); });
}

void NetAgent::close() {
  thread_.on_io([&] { link_->close(); });
}

std::string NetAgent::dialed_addr() {
  return thread_.on_io([&] { return link_->dialed_addr(); });
}

bool NetAgent::run_up(const JobId& job) {
  send(join_message(job, "a", 1, 1));
  if (!heard.next<JoinAccepted>()) return false;
  const auto prepare = heard.next<Prepare>();
  if (!prepare) return false;
  Envelope envelope = heard.last;
  envelope.generation = prepare->assignment.generation;
  send(message_from(envelope, PrepareAnswer{prepare->attempt, true, 29999, ""}));
  if (!heard.next<Commit>()) return false;
  send(message_from(envelope, WorkersStarted{{{0, 4242}}, 1ms}));
  heard.last = envelope;
  return true;
}

bool NetAgent::finish_job() {
  const Envelope envelope = heard.last;
  WorkerExited exited;
  exited.pid = 4242;
  send(message_from(envelope, exited));
  if (!heard.next<OutcomeNotice>()) return false;
  send(message_from(envelope, OutcomeSeen{}));
  return true;
}

NetServer::NetServer(rendezvous::ServerOptions options) {
  options.on_job_over = [this](const JobId&, const RunId&, const Outcome& outcome) {
    over.put(outcome);
  };
  thread.on_io([&] {
    server_ = std::make_unique<rendezvous::RendezvousServer>(thread.io(), std::move(options));
  });
}

NetServer::~NetServer() {
  kill();
}

absl::StatusOr<int> NetServer::try_listen(const std::string& host, int port) {
  return thread.on_io([&] { return server_->listen(host, port); });
}

int NetServer::listen(const std::string& host) {
  return try_listen(host, 0).value_or(-1);
}

absl::Status NetServer::listen_unix(const std::string& path) {
  return thread.on_io([&] { return server_->listen_unix(path); });
}

std::vector<rendezvous::JobView> NetServer::view() {
  return thread.on_io([&] { return server_->view(); });
}

void NetServer::stop(const std::string& reason) {
  std::promise<void> done;
  thread.on_io([&] { server_->stop(reason, [&done] { done.set_value(); }); });
  done.get_future().wait();
}

void NetServer::kill() {
  thread.on_io([&] { server_.reset(); });
}

}  // namespace muster::test
