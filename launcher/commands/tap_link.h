// SPDX-License-Identifier: Apache-2.0
//
// A ServerLink that shows someone the server's messages as they pass. `muster run` notes with it
// whether a fault of its plan never fired.
//
// Thread rule: as ServerLink; the io thread only.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "agent/shell/server_link.h"

namespace muster::launcher {

class TapLink : public agent::ServerLink {
 public:
  using Seen = std::function<void(const ServerMessage&)>;

  TapLink(std::unique_ptr<agent::ServerLink> link, Seen seen)
      : link_(std::move(link)), seen_(std::move(seen)) {}

  void open(Callbacks callbacks) override {
    callbacks.said = [seen = seen_, said = std::move(callbacks.said)](ServerMessage message) {
      seen(message);
      said(std::move(message));
    };
    link_->open(std::move(callbacks));
  }
  void send(AgentMessage message) override { link_->send(std::move(message)); }
  void store(StoreRequest request) override { link_->store(std::move(request)); }
  void close() override { link_->close(); }

 private:
  std::unique_ptr<agent::ServerLink> link_;
  Seen seen_;
};

}  // namespace muster::launcher
