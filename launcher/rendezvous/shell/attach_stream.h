// SPDX-License-Identifier: Apache-2.0
//
// One agent's Attach stream, seen from the server. One message is read at a time and the next only
// when the io thread has dealt with it, so a chattering agent is slowed down by its own stream.
// What is said to it queues here, bounded; an agent that does not read is cut off.
//
// Thread rule: SessionSink's members on the io thread; reactions on gRPC's threads. The mutex
// guards the queue and the ending, nothing else. The stream owns itself until gRPC is done.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include "launcher/rendezvous/shell/answer_pacer.h"
#include "launcher/rendezvous/shell/server_core.h"
#include "proto/wire/messages.h"

namespace muster::rendezvous {

class AttachStream final : public grpc::ServerBidiReactor<v1::AgentMessage, v1::ServerMessage>,
                           public SessionSink,
                           public std::enable_shared_from_this<AttachStream> {
 public:
  struct Limits {
    std::size_t bytes = 0;
    std::size_t messages = 0;
    std::shared_ptr<Outgoing> all;  // counts the bytes of all streams
  };
  // All are called on the io thread.
  struct Callbacks {
    std::function<void(const std::shared_ptr<AttachStream>&)> opened;
    std::function<void(AttachStream&, wire::FromAgent)> heard;
    std::function<void(AttachStream&)> lost;  // nothing more comes; maybe twice
    std::function<void()> ended;              // gRPC is done with it
  };

  // Called on a gRPC thread; gRPC takes the result.
  static AttachStream* start(boost::asio::io_context& io, grpc::CallbackServerContext& context,
                             std::string peer_addr, Limits limits, Callbacks callbacks);

  void say(const ServerMessage& message) override { say(wire::to_wire(message)); }
  void say(const StoreReply& reply) override { say(wire::to_wire(reply)); }
  void finish(const std::string& reason) override;

  const std::string& peer_addr() const { return peer_addr_; }
  SessionId session = 0;  // set by `opened`; io thread

 private:
  AttachStream(boost::asio::io_context& io, grpc::CallbackServerContext& context,
               std::string peer_addr, Limits limits, Callbacks callbacks);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void say(v1::ServerMessage message);
  void read_next();
  void report_lost();
  void close_with(const grpc::Status& status);
  // The mutex is held.
  void write_next();
  void end(const grpc::Status& status);
  void cut_off();
  void count_off(std::size_t bytes);

  boost::asio::io_context& io_;
  const std::string peer_addr_;
  const Limits limits_;
  const Callbacks callbacks_;
  v1::AgentMessage incoming_;
  boost::asio::steady_timer farewell_;  // io thread

  std::mutex mutex_;
  grpc::CallbackServerContext* context_;  // gRPC's; null once it is done
  std::deque<v1::ServerMessage> queue_;
  std::size_t queued_bytes_ = 0;  // of what gRPC is writing, too
  v1::ServerMessage outgoing_;
  bool writing_ = false;
  std::optional<grpc::Status> closing_;  // said once the queue is empty
  bool ended_ = false;                   // Finish was called
  std::shared_ptr<AttachStream> self_;
};

}  // namespace muster::rendezvous
