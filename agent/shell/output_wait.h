// SPDX-License-Identifier: Apache-2.0
//
// The wait for what is queued for consoles and log files: lasts as long as somebody takes some of
// it, and a while more.
//
// Thread rule: io thread only.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/shell/console_out.h"
#include "agent/shell/output_writer.h"
#include "proto/base/time.h"

namespace muster::agent {

class OutputWait {
 public:
  OutputWait(boost::asio::io_context& io, std::vector<std::shared_ptr<ConsoleSurface>> surfaces,
             std::shared_ptr<OutputWriter> log_writer);
  ~OutputWait();  // a wait that is not over is forgotten
  OutputWait(const OutputWait&) = delete;
  OutputWait& operator=(const OutputWait&) = delete;

  // Calls `done` when everything queued has been written, or for `patience` nobody has taken
  // anything of it, or `limit` has passed, or give_up() is called. Never from inside this call.
  void start(Duration patience, Duration limit, std::function<void()> done);
  void give_up();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace muster::agent
