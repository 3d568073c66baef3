// SPDX-License-Identifier: Apache-2.0
//
// A ServerLink whose traffic a fault plan can hold up: a partition, which keeps back what is said
// until it heals, as a network that drops packets does to a stream; or a delay. Both ends see
// silence, not an end. While nothing is held up it is a call more a message.
//
// Thread rule: as ServerLink; the io thread only.
#pragma once

#include <memory>

#include <boost/asio/io_context.hpp>

#include "agent/shell/server_link.h"
#include "proto/base/faults.h"

namespace muster::agent {

class FaultyLink : public ServerLink {
 public:
  FaultyLink(boost::asio::io_context& io, std::unique_ptr<ServerLink> link);
  ~FaultyLink() override;

  // Begins now. REQUIRES: a kPartition or kDelay.
  void disturb(const Fault& fault);

  void open(Callbacks callbacks) override;
  void send(AgentMessage message) override;
  void store(StoreRequest request) override;
  void close() override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace muster::agent
