// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/agent_stream.h"

#include <utility>

#include <boost/asio/post.hpp>

#include "proto/transport/grpc_channel.h"

namespace muster::agent {

AgentStream::AgentStream(boost::asio::io_context& io, transport::File file,
                         std::size_t max_queued_bytes, Callbacks callbacks)
    : io_(io),
      max_queued_bytes_(max_queued_bytes),
      callbacks_(std::move(callbacks)),
      stub_(v1::Rendezvous::NewStub(transport::channel_over(std::move(file)))) {}

std::shared_ptr<AgentStream> AgentStream::start(boost::asio::io_context& io, transport::File file,
                                                const std::string& token,
                                                std::size_t max_queued_bytes, Callbacks callbacks) {
  const std::shared_ptr<AgentStream> stream(
      new AgentStream(io, std::move(file), max_queued_bytes, std::move(callbacks)));
  stream->self_ = stream;
  transport::present_token(stream->context_, token);
  stream->stub_->async()->Attach(&stream->context_, stream.get());
  stream->AddHold();  // writes come from outside of reactions; released when reading ends
  stream->StartCall();
  return stream;
}

void AgentStream::OnReadInitialMetadataDone(bool ok) {
  if (!ok) return read_next();  // learns the status
  boost::asio::post(io_, [self = shared_from_this()] {
    if (!self->silent_) self->callbacks_.opened(transport::instance_of(self->context_));
    self->read_next();
  });
}

void AgentStream::read_next() {
  const std::lock_guard lock(mutex_);
  read_next_locked();
}

void AgentStream::read_next_locked() {
  if (reading_ || read_ended_) return;
  reading_ = true;
  StartRead(&incoming_);
}

void AgentStream::OnReadDone(bool ok) {
  if (!ok) {
    {
      const std::lock_guard lock(mutex_);
      reading_ = false;
      read_ended_ = true;
      queue_.clear();
    }
    RemoveHold();
    return;
  }
  absl::StatusOr<wire::FromServer> message = wire::from_wire(incoming_);
  {
    const std::lock_guard lock(mutex_);
    reading_ = false;
    if (!message.ok()) {
      complaint_ = "the server sent nonsense: " + std::string(message.status().message());
      context_.TryCancel();
    }
    // A closed stream is read to its end here: its owner may be waiting on the io thread.
    if (!message.ok() || silent_) return read_next_locked();
  }
  boost::asio::post(io_, [self = shared_from_this(), heard = *std::move(message)]() mutable {
    if (!self->silent_) self->callbacks_.heard(std::move(heard));
    self->read_next();
  });
}

void AgentStream::send(v1::AgentMessage message) {
  const std::size_t bytes = message.ByteSizeLong();
  const std::lock_guard lock(mutex_);
  if (read_ended_ || broken_ || closing_) return;
  queued_bytes_ += bytes;
  queue_.push_back(std::move(message));
  if (queued_bytes_ > max_queued_bytes_) {
    broken_ = true;
    complaint_ = "the server does not read what is sent to it";
    context_.TryCancel();
  } else if (!writing_) {
    write_next();
  }
}

void AgentStream::write_next() {
  outgoing_ = std::move(queue_.front());
  queue_.pop_front();
  writing_ = true;
  StartWrite(&outgoing_);
}

void AgentStream::OnWriteDone(bool ok) {
  const std::lock_guard lock(mutex_);
  writing_ = false;
  queued_bytes_ -= outgoing_.ByteSizeLong();
  if (!ok) {
    broken_ = true;
    queue_.clear();
  }
  if (read_ended_ || broken_) return;
  if (!queue_.empty()) {
    write_next();
  } else if (closing_) {
    StartWritesDone();
  }
}

void AgentStream::close() {
  silence();
  const std::lock_guard lock(mutex_);
  read_next_locked();
  if (closing_ || broken_ || read_ended_) return;
  closing_ = true;
  if (!writing_) StartWritesDone();
}

void AgentStream::cancel() {
  context_.TryCancel();
  read_next();
}

void AgentStream::silence() {
  silent_ = true;
  callbacks_ = {};
}

bool AgentStream::wait_until_done(Duration most) {
  std::unique_lock lock(end_->mutex);
  return end_->changed.wait_for(lock, most, [this] { return end_->reached; });
}

void AgentStream::OnDone(const grpc::Status& status) {
  grpc::Status why = status;
  {
    const std::lock_guard lock(mutex_);
    if (!complaint_.empty()) why = {grpc::StatusCode::INTERNAL, complaint_};
  }
  const std::shared_ptr<End> end = end_;
  // Before the end is told: whoever waits for it may end the io loop afterwards. From here on the
  // loop owns the stream, and may have destroyed it.
  boost::asio::post(io_, [self = std::move(self_), why] {
    if (self->silent_) return;
    const auto ended = std::move(self->callbacks_.ended);
    self->silence();
    ended(why);
  });
  const std::lock_guard lock(end->mutex);
  end->reached = true;
  end->changed.notify_all();
}

}  // namespace muster::agent
