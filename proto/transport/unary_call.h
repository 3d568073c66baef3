// SPDX-License-Identifier: Apache-2.0
//
// The server's side of one unary call that is answered later, by another thread. The first
// finish() wins; a cancelled call finishes itself, so that a server can shut down while its io
// thread waits. The call owns itself until gRPC is done with it; who answers holds a shared_ptr.
//
// Thread rule: any thread.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include <grpcpp/support/server_callback.h>
#include <grpcpp/support/status.h>

namespace muster::transport {

template <class Reply>
class UnaryCall final : public grpc::ServerUnaryReactor {
 public:
  // `ended` is called once, on a gRPC thread, when gRPC is done with the call.
  static std::shared_ptr<UnaryCall> start(Reply* reply, std::function<void()> ended = nullptr) {
    auto call = std::shared_ptr<UnaryCall>(new UnaryCall(reply, std::move(ended)));
    call->self_ = call;
    return call;
  }

  void finish(const grpc::Status& status, Reply reply = {}) {
    const std::lock_guard lock(mutex_);
    if (finished_) return;
    finished_ = true;
    *reply_ = std::move(reply);
    Finish(status);
  }

  // Whether the caller is gone or was answered.
  bool over() const {
    const std::lock_guard lock(mutex_);
    return finished_;
  }

 private:
  UnaryCall(Reply* reply, std::function<void()> ended) : reply_(reply), ended_(std::move(ended)) {}

  void OnCancel() override { finish(grpc::Status::CANCELLED); }
  void OnDone() override {
    const std::shared_ptr<UnaryCall> self = std::move(self_);
    if (ended_) ended_();
  }

  mutable std::mutex mutex_;
  Reply* const reply_;  // gRPC's; valid until finished
  const std::function<void()> ended_;
  bool finished_ = false;
  std::shared_ptr<UnaryCall> self_;
};

}  // namespace muster::transport
