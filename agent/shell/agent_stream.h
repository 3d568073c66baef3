// SPDX-License-Identifier: Apache-2.0
//
// One Attach stream, seen from the agent: the gRPC half of GrpcLink. Messages are read one at a
// time, the next when the io thread has dealt with the last; what is sent queues here, bounded.
//
// Thread rule: public members on the io thread; reactions on gRPC's threads; callbacks are posted
// to the io loop. The mutex guards the queue and the ending. The stream owns itself until gRPC is
// done with it; wait_until_done() lets its owner outlive it. It is always destroyed by the io loop:
// the last channel of a process joins gRPC's threads, so it must not die on one of them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include <boost/asio/io_context.hpp>
#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include "muster/v1/rendezvous.grpc.pb.h"
#include "proto/base/time.h"
#include "proto/transport/file.h"
#include "proto/wire/messages.h"

namespace muster::agent {

class AgentStream final : public grpc::ClientBidiReactor<v1::AgentMessage, v1::ServerMessage>,
                          public std::enable_shared_from_this<AgentStream> {
 public:
  struct Callbacks {
    // The server's first answer; `instance` is empty if it is no Muster server.
    std::function<void(std::string instance)> opened;
    std::function<void(wire::FromServer)> heard;
    // The end, once, whoever caused it.
    std::function<void(const grpc::Status&)> ended;
  };

  static std::shared_ptr<AgentStream> start(boost::asio::io_context& io, transport::File file,
                                            const std::string& token, std::size_t max_queued_bytes,
                                            Callbacks callbacks);

  void send(v1::AgentMessage message);
  // Ends the stream once the queue has left; the callbacks are not called any more.
  void close();
  // Ends it now. The status says CANCELLED.
  void cancel();
  // Drops the callbacks.
  void silence();
  // Blocks until gRPC is done or the time is over. It needs no io thread.
  bool wait_until_done(Duration most);

 private:
  // Outlives the stream, which may be gone before gRPC's last reaction returns.
  struct End {
    std::mutex mutex;
    std::condition_variable changed;
    bool reached = false;
  };

  AgentStream(boost::asio::io_context& io, transport::File file, std::size_t max_queued_bytes,
              Callbacks callbacks);

  void OnReadInitialMetadataDone(bool ok) override;
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  void read_next();
  // The mutex is held.
  void write_next();
  void read_next_locked();

  boost::asio::io_context& io_;
  const std::size_t max_queued_bytes_;
  Callbacks callbacks_;               // io thread
  std::atomic<bool> silent_ = false;  // set on the io thread
  std::unique_ptr<v1::Rendezvous::Stub> stub_;
  grpc::ClientContext context_;
  v1::ServerMessage incoming_;

  const std::shared_ptr<End> end_ = std::make_shared<End>();

  std::mutex mutex_;
  std::deque<v1::AgentMessage> queue_;
  std::size_t queued_bytes_ = 0;
  v1::AgentMessage outgoing_;
  bool reading_ = false;
  bool read_ended_ = false;
  bool writing_ = false;
  bool broken_ = false;  // a write failed: the end is near
  bool closing_ = false;
  std::string complaint_;  // why we ended it ourselves; in words
  std::shared_ptr<AgentStream> self_;
};

}  // namespace muster::agent
