// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/shell/attach_stream.h"

#include <utility>

#include <boost/asio/post.hpp>

namespace muster::rendezvous {
namespace {

// How long a closing stream may take to read what was said before it is cut off.
constexpr auto kFarewell = std::chrono::seconds(5);

}  // namespace

AttachStream::AttachStream(boost::asio::io_context& io, grpc::CallbackServerContext& context,
                           std::string peer_addr, Limits limits, Callbacks callbacks)
    : io_(io),
      peer_addr_(std::move(peer_addr)),
      limits_(std::move(limits)),
      callbacks_(std::move(callbacks)),
      farewell_(io),
      context_(&context) {}

AttachStream* AttachStream::start(boost::asio::io_context& io, grpc::CallbackServerContext& context,
                                  std::string peer_addr, Limits limits, Callbacks callbacks) {
  const std::shared_ptr<AttachStream> stream(
      new AttachStream(io, context, std::move(peer_addr), std::move(limits), std::move(callbacks)));
  stream->self_ = stream;
  stream->StartSendInitialMetadata();
  boost::asio::post(io, [stream] {
    stream->callbacks_.opened(stream);
    stream->read_next();
  });
  return stream.get();
}

void AttachStream::read_next() {
  const std::lock_guard lock(mutex_);
  if (!ended_) StartRead(&incoming_);
}

void AttachStream::OnReadDone(bool ok) {
  if (!ok) {  // the agent is done, or gone
    report_lost();
    close_with(grpc::Status::OK);
    return;
  }
  absl::StatusOr<wire::FromAgent> message = wire::from_wire(incoming_);
  if (!message.ok()) {
    report_lost();
    close_with({grpc::StatusCode::INVALID_ARGUMENT, std::string(message.status().message())});
    return;
  }
  boost::asio::post(io_, [self = shared_from_this(), heard = *std::move(message)]() mutable {
    self->callbacks_.heard(*self, std::move(heard));
    self->read_next();
  });
}

void AttachStream::report_lost() {
  boost::asio::post(io_, [self = shared_from_this()] { self->callbacks_.lost(*self); });
}

void AttachStream::say(v1::ServerMessage message) {
  const std::size_t bytes = message.ByteSizeLong();
  const std::lock_guard lock(mutex_);
  if (ended_ || closing_) return;
  queued_bytes_ += bytes;
  limits_.all->add(bytes);
  queue_.push_back(std::move(message));
  if (queued_bytes_ > limits_.bytes || queue_.size() > limits_.messages) {
    cut_off();
  } else if (!writing_) {
    write_next();
  }
}

void AttachStream::write_next() {
  outgoing_ = std::move(queue_.front());
  queue_.pop_front();
  writing_ = true;
  StartWrite(&outgoing_);
}

void AttachStream::OnWriteDone(bool ok) {
  const std::lock_guard lock(mutex_);
  writing_ = false;
  count_off(outgoing_.ByteSizeLong());
  if (!ok) return end(grpc::Status::CANCELLED);
  if (ended_) return;
  if (!queue_.empty()) {
    write_next();
  } else if (closing_) {
    end(*closing_);
  }
}

void AttachStream::finish(const std::string& reason) {
  close_with({grpc::StatusCode::UNAVAILABLE, reason});
}

void AttachStream::close_with(const grpc::Status& status) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_ || closing_) return;
    if (!writing_) return end(status);
    closing_ = status;
  }
  boost::asio::post(io_, [self = shared_from_this()] {
    self->farewell_.expires_after(kFarewell);
    self->farewell_.async_wait([weak = self->weak_from_this()](const boost::system::error_code& e) {
      const auto stream = weak.lock();
      if (!stream || e) return;
      const std::lock_guard lock(stream->mutex_);
      stream->cut_off();
    });
  });
}

void AttachStream::end(const grpc::Status& status) {
  if (ended_) return;
  ended_ = true;
  queue_.clear();
  Finish(status);
}

// A status would queue behind what the agent does not read: only a reset gets through.
void AttachStream::cut_off() {
  if (!ended_ && context_ != nullptr) context_->TryCancel();
}

void AttachStream::count_off(std::size_t bytes) {
  queued_bytes_ -= bytes;
  limits_.all->subtract(bytes);
}

void AttachStream::OnCancel() {
  report_lost();
  const std::lock_guard lock(mutex_);
  end(grpc::Status::CANCELLED);
}

void AttachStream::OnDone() {
  {
    const std::lock_guard lock(mutex_);
    context_ = nullptr;
    ended_ = true;
    count_off(queued_bytes_);
  }
  boost::asio::post(io_, [self = std::move(self_)] {
    self->farewell_.cancel();
    self->callbacks_.lost(*self);
    self->callbacks_.ended();
  });
}

}  // namespace muster::rendezvous
