// SPDX-License-Identifier: Apache-2.0
//
// A session whose agent lives in the server's process: no message is ever serialised.
#pragma once

#include <memory>

#include <boost/asio/io_context.hpp>

#include "launcher/rendezvous/shell/server_core.h"

namespace muster::rendezvous {

// Attaches to the server that `core` points to; the session does nothing once that has expired.
std::unique_ptr<LocalSession> open_local_session(boost::asio::io_context& io,
                                                 const std::shared_ptr<ServerCore*>& core,
                                                 LocalSession::Callbacks callbacks);

}  // namespace muster::rendezvous
