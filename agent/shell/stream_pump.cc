// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/stream_pump.h"

#include <errno.h>
#include <unistd.h>
#include <utility>

#include <boost/asio/post.hpp>

#include "agent/shell/io_loop.h"
#include "proto/base/check.h"

namespace muster::agent {
namespace {

constexpr int kReadsPerTurn = 4;  // then the other streams have theirs
constexpr std::size_t kDrainBytes = 1U << 20;
constexpr Duration kRest = 50ms;

}  // namespace

StreamPump::StreamPump(boost::asio::io_context& io, PumpConfig config)
    : io_(io),
      source_(io),
      partial_timer_(io),
      update_timer_(io),
      rest_timer_(io),
      config_(std::move(config)),
      splitter_(config_.console != nullptr && config_.console->terminal()),
      sink_([this](PieceKind kind, std::string_view text) { show(kind, text); }),
      picked_sink_([this](std::string lines) {
        config_.log_writer->write(config_.picked, std::move(lines), budget_);
      }),
      budget_(std::make_shared<StreamBudget>()) {}

void StreamPump::start(std::function<void()> ended) {
  on_end_ = std::move(ended);
  boost::system::error_code error;
  source_.assign(config_.source.release(), error);
  MUSTER_CHECK(!error);
  budget_->drained = [self = weak_from_this()] {
    if (const auto pump = self.lock(); pump && !pump->ended_) pump->wait();
  };
  if (config_.log && config_.only_lost) {
    config_.log->lost = [self = weak_from_this()](const std::string& text) {
      if (const auto pump = self.lock()) pump->take_lost(text);
    };
  }
  wait();
}

void StreamPump::wait() {
  if (waiting_) return;
  waiting_ = true;
  source_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [self = shared_from_this()](const boost::system::error_code& error) {
                       self->waiting_ = false;
                       if (!error && !self->ended_) self->read_some();
                     });
}

void StreamPump::read_some() {
  for (int turn = 0; turn < kReadsPerTurn; ++turn) {
    switch (read_once()) {
      case Read::kEnd: return end();
      case Read::kNothing: return wait();
      case Read::kSome: break;
    }
    if (pause_if_full() || rest_if_asked()) return;
  }
  wait();
}

StreamPump::Read StreamPump::read_once() {
  std::vector<char>& buffer = *config_.buffer;
  for (;;) {
    const ssize_t count = ::read(source_.native_handle(), buffer.data(), buffer.size());
    if (count > 0) {
      take({buffer.data(), static_cast<std::size_t>(count)});
      return Read::kSome;
    }
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return Read::kNothing;
    return Read::kEnd;  // a terminal says EIO when the other side has closed it
  }
}

void StreamPump::take(std::string_view data) {
  read_at_ = last_read_ = IoLoop::now();
  if (config_.heard) *config_.heard += data.size();
  any_read_ = true;
  if (config_.tail) config_.tail->append(data);
  if (config_.tracebacks) config_.tracebacks->feed(data, read_at_);
  if (config_.log) config_.log_writer->write(config_.log, std::string(data), budget_);
  if (config_.unlogged) config_.unlogged->bytes += data.size();
  if (config_.filter) config_.filter->feed(data, picked_sink_);
  if (!config_.console || config_.only_lost) return;
  splitter_.feed(data, sink_);
  arm_partial_timer();
}

// In the order of the log; the stream may have ended by now.
void StreamPump::take_lost(std::string_view data) {
  splitter_.feed(data, sink_);
  if (!ended_) return arm_partial_timer();
  splitter_.finish(sink_);
}

bool StreamPump::pause_if_full() {
  if (budget_->queued <= StreamBudget::kHigh) return false;
  budget_->paused = true;
  // The writer may have emptied the queue before it could see `paused`.
  return !(budget_->queued <= StreamBudget::kLow && budget_->paused.exchange(false));
}

bool StreamPump::rest_if_asked() {
  if (!config_.console || !config_.console->wants_rest(IoLoop::now())) return false;
  resting_ = true;
  rest_timer_.expires_after(kRest);
  rest_timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    self->resting_ = false;
    if (error || self->ended_ || self->rest_if_asked()) return;
    self->read_some();
  });
  return true;
}

void StreamPump::show(PieceKind kind, std::string_view text) {
  if (kind == PieceKind::kUpdate) {
    const bool armed = !update_.empty();
    update_ = text;
    if (!armed) show_update();
    return;
  }
  // A state that did not get its turn is overtaken by what follows.
  update_.clear();
  update_timer_.cancel();
  config_.console->show(config_.id, kind, text, config_.prefix);
}

void StreamPump::show_update() {
  const Instant now = IoLoop::now();
  if (now < *config_.next_update) {
    update_timer_.expires_after(*config_.next_update - now);
    update_timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error && !self->update_.empty()) self->show_update();
    });
    return;
  }
  *config_.next_update = now + kUpdateInterval;
  config_.console->show(config_.id, PieceKind::kUpdate, std::exchange(update_, {}), config_.prefix);
}

void StreamPump::arm_partial_timer() {
  if (partial_armed_ || !splitter_.has_partial()) return;
  partial_armed_ = true;
  partial_timer_.expires_after(last_read_ + kPartialLineDelay - IoLoop::now());
  partial_timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    self->partial_armed_ = false;
    if (error || self->ended_) return;
    // Not while more of the line waits in the pipe or for the console.
    const bool reading = !self->budget_->paused && !self->resting_;
    const Duration silence = IoLoop::now() - self->last_read_;
    if (reading && silence >= kPartialLineDelay && self->read_once() == Read::kNothing) {
      self->splitter_.quiet(self->sink_);
      return;
    }
    if (!reading || silence >= kPartialLineDelay) self->last_read_ = IoLoop::now();
    self->arm_partial_timer();
  });
}

void StreamPump::drain_now() {
  if (ended_) return;
  std::size_t taken = 0;
  while (taken < kDrainBytes && read_once() == Read::kSome)
    taken += config_.buffer->size();
}

void StreamPump::close() {
  if (ended_) return;
  drain_now();
  end();
}

void StreamPump::end() {
  ended_ = true;
  if (config_.filter) config_.filter->finish(picked_sink_);
  if (config_.console) {
    splitter_.finish(sink_);
    if (!update_.empty()) {
      config_.console->show(config_.id, PieceKind::kUpdate, update_, config_.prefix);
    }
    update_.clear();
    update_timer_.cancel();
  }
  boost::system::error_code ignored;
  source_.close(ignored);
  partial_timer_.cancel();
  rest_timer_.cancel();
  config_.log.reset();
  config_.picked.reset();
  budget_->drained = nullptr;
  boost::asio::post(io_, [call = std::exchange(on_end_, nullptr)] {
    if (call) call();
  });
}

}  // namespace muster::agent
