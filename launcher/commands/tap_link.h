// SPDX-License-Identifier: Apache-2.0
//
// A ServerLink that shows someone the server's messages as they pass, and whether it is up.
// `muster run` notes with it whether a fault of its plan never fired, and what its probes say.
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

  using Up = std::function<void(bool)>;

  TapLink(std::unique_ptr<agent::ServerLink> link, Seen seen, Up up)
      : link_(std::move(link)), seen_(std::move(seen)), up_(std::move(up)) {}

  void open(Callbacks callbacks) override {
    callbacks.said = [seen = seen_, said = std::move(callbacks.said)](ServerMessage message) {
      seen(message);
      said(std::move(message));
    };
    callbacks.up = [noted = up_, up = std::move(callbacks.up)] {
      noted(true);
      up();
    };
    callbacks.down = [noted = up_, down = std::move(callbacks.down)](const std::string& reason,
                                                                     bool speaks_muster) {
      noted(false);
      down(reason, speaks_muster);
    };
    link_->open(std::move(callbacks));
  }
  void send(AgentMessage message) override { link_->send(std::move(message)); }
  void store(StoreRequest request) override { link_->store(std::move(request)); }
  void close() override { link_->close(); }

 private:
  std::unique_ptr<agent::ServerLink> link_;
  Seen seen_;
  Up up_;
};

}  // namespace muster::launcher
