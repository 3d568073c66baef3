// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/output_writer.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <errno.h>
#include <limits.h>
#include <memory>
#include <mutex>
#include <optional>
#include <poll.h>
#include <signal.h>
#include <string_view>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/shell/write_all.h"

namespace muster::agent {
namespace {

// No reader any more; everything else (a full disk, an I/O error) may pass.
bool is_closed_for_good(int error) {
  return error == EPIPE || error == EBADF || error == ECONNRESET || error == ENXIO || error == EIO;
}

constexpr int kNoThreadPatienceMs = 100;
constexpr Duration kNoThreadPause = 50ms;

}  // namespace

struct OutputWriter::State {
  State(boost::asio::io_context& context, SpoolLimits limits,
        std::function<void(std::uint64_t)> on_dropped)
      : io(&context), queue(std::move(limits)), dropped(std::move(on_dropped)) {}

  std::mutex mutex;
  std::condition_variable changed;   // work for the thread, or the end
  std::condition_variable finished;  // the thread is done
  boost::asio::io_context* io;       // null once the owner is gone: nobody to tell
  OutputSpool queue;
  std::optional<OutputChunk> unfinished;  // of it, begun without a thread
  std::unique_ptr<boost::asio::steady_timer> retry;
  std::function<void(std::uint64_t)> dropped;
  std::atomic<std::uint64_t> written{0};
  std::uint64_t chunk_end = 0;  // `written` when the chunk in hand is
  std::vector<std::function<void()>> idle;
  bool busy = false;
  bool closed = false;
  bool started = false;
  bool done = false;

  // The thread, with the first bytes; where there is none to be had, this is tried again.
  // REQUIRES: mutex held.
  static void start(const std::shared_ptr<State>& state) {
    if (std::exchange(state->started, true)) return;
    // Signals are the io thread's; the thread keeps the state alive, should it be stuck at the end.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      std::thread([state] { state->run(); }).detach();
    } catch (const std::system_error&) {
      state->started = false;
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  // Without a thread: what is taken without waiting for it, so that a node that has no process
  // left can say so, and its workers go on. REQUIRES: mutex held, not started.
  void write_what_goes(int patience_ms) {
    while (!queue.empty() || unfinished) {
      if (!unfinished) unfinished = queue.pop();
      OutputChunk& chunk = *unfinished;
      std::string_view rest;
      int error = 0;
      if (!chunk.target->rotating && !chunk.target->dead) {
        if (!write_a_piece(chunk, patience_ms, error)) return;
        if (error == 0 && !chunk.bytes.empty()) continue;
        rest = chunk.bytes;
        note_missing(*chunk.target, rest.size());
      } else {
        error = write_chunk(chunk, rest);
      }
      account(chunk, error, rest);
      unfinished.reset();
    }
  }

  // As much as a pipe that is ready takes without blocking (pipe(7)). False: it takes none now.
  bool write_a_piece(OutputChunk& chunk, int patience_ms, int& error) {
    pollfd ready{chunk.target->fd, POLLOUT, 0};
    if (::poll(&ready, 1, patience_ms) <= 0) return false;
    const std::size_t most = std::min<std::size_t>(chunk.bytes.size(), PIPE_BUF);
    const ssize_t count = ::write(chunk.target->fd, chunk.bytes.data(), most);
    if (count < 0 && errno != EINTR) error = errno;
    if (count <= 0) return true;
    chunk.bytes.erase(0, static_cast<std::size_t>(count));
    written += static_cast<std::uint64_t>(count);
    if (chunk.budget) chunk.budget->queued -= static_cast<std::size_t>(count);
    return true;
  }

  // Called again until there is a thread, or nothing to write. REQUIRES: mutex held.
  static void try_again_later(const std::shared_ptr<State>& state) {
    if (state->io == nullptr || state->retry) return;
    state->retry = std::make_unique<boost::asio::steady_timer>(*state->io, kNoThreadPause);
    state->retry->async_wait([weak = std::weak_ptr(state)](const boost::system::error_code& error) {
      const auto alive = weak.lock();
      if (error || !alive) return;
      const std::lock_guard lock(alive->mutex);
      alive->retry.reset();
      if (alive->closed || (alive->queue.empty() && !alive->unfinished)) return;
      start(alive);
      if (alive->started) return alive->changed.notify_one();
      alive->write_what_goes(0);
      try_again_later(alive);
    });
  }

  // REQUIRES: mutex held, so that io cannot go away meanwhile.
  void tell(std::function<void()> call) {
    if (io != nullptr) boost::asio::post(*io, std::move(call));
  }

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return closed || !queue.empty() || unfinished; });
      if (queue.empty() && !unfinished) break;
      OutputChunk chunk = unfinished ? *std::exchange(unfinished, std::nullopt) : queue.pop();
      chunk_end = written + chunk.bytes.size();
      busy = true;
      lock.unlock();
      std::string_view rest;
      const int error = write_chunk(chunk, rest);
      lock.lock();
      busy = false;
      account(chunk, error, rest);
      if (const std::uint64_t count = dropped ? queue.take_dropped() : 0; count > 0) {
        tell([call = dropped, count] { call(count); });
      }
      if (queue.empty()) {
        for (auto& call : std::exchange(idle, {}))
          tell(std::move(call));
      }
      // The target may be the last reference to a file; closing may block, so not under the lock.
      lock.unlock();
      chunk = OutputChunk();
      lock.lock();
    }
    done = true;
    finished.notify_all();
  }

  // `rest`: what of the chunk could not be written.
  int write_chunk(OutputChunk& chunk, std::string_view& rest) {
    OutputTarget& target = *chunk.target;
    rest = chunk.bytes;
    int error = 0;
    if (target.rotating) {
      error = target.rotating->write(rest, written);
    } else if (!target.dead) {
      error = write_all(target.fd, rest, written);
    }
    note_missing(target, rest.size());
    return error;
  }

  static void note_missing(OutputTarget& target, std::size_t bytes) {
    target.drops->bytes += bytes;
    target.missing += bytes;
  }

  // REQUIRES: mutex held.
  void tell_trouble(const std::shared_ptr<OutputTarget>& target, int error, std::string_view rest) {
    if (error == 0) {
      if (std::exchange(target->failing, false) && target->resumed) {
        tell([target, missing = target->missing] { target->resumed(missing); });
      }
    } else {
      target->failing = true;
      if (target->give_up_on_close && is_closed_for_good(error)) target->dead = true;
      ++target->drops->errors;
      if (!std::exchange(target->told, true) && target->failed) {
        tell([target, error] { target->failed(error); });
      }
      if (target->lost) {
        tell([target, text = std::string(rest)]() mutable { target->lost(std::move(text)); });
      }
    }
    const int rotation = target->rotating ? target->rotating->take_trouble() : 0;
    if (rotation != 0 && target->not_rotated) {
      tell([target, rotation] { target->not_rotated(rotation); });
    }
  }

  void account(OutputChunk& chunk, int error, std::string_view rest) {
    tell_trouble(chunk.target, error, rest);
    if (!chunk.budget) return;
    StreamBudget& budget = *chunk.budget;
    const std::size_t left = budget.queued -= chunk.bytes.size();
    if (left <= StreamBudget::kLow && budget.paused.exchange(false)) {
      tell([budget = chunk.budget] {
        if (budget->drained) budget->drained();
      });
    }
  }
};

OutputWriter::OutputWriter(boost::asio::io_context& io)
    : OutputWriter(io, SpoolLimits{}, nullptr) {}

OutputWriter::OutputWriter(boost::asio::io_context& io, SpoolLimits limits,
                           std::function<void(std::uint64_t)> dropped)
    : state_(std::make_shared<State>(io, std::move(limits), std::move(dropped))) {}

OutputWriter::~OutputWriter() {
  close();
}

void OutputWriter::close() {
  std::unique_lock lock(state_->mutex);
  if (std::exchange(state_->closed, true)) return;
  state_->changed.notify_all();
  state_->retry.reset();
  if (!state_->started) {
    state_->write_what_goes(kNoThreadPatienceMs);
  } else {
    state_->finished.wait_for(lock, std::chrono::milliseconds(100),
                              [this] { return state_->done; });
  }
  state_->io = nullptr;
}

void OutputWriter::write(std::shared_ptr<OutputTarget> target, std::string bytes,
                         std::shared_ptr<StreamBudget> budget) {
  if (bytes.empty()) return;
  if (budget) budget->queued += bytes.size();
  const std::lock_guard lock(state_->mutex);
  state_->queue.push({std::move(target), std::move(bytes), std::move(budget)});
  State::start(state_);
  state_->changed.notify_one();
  if (!state_->started) State::try_again_later(state_);
}

bool OutputWriter::idle() const {
  const std::lock_guard lock(state_->mutex);
  return state_->queue.empty() && !state_->unfinished && !state_->busy;
}

bool OutputWriter::nearly_full() const {
  const std::lock_guard lock(state_->mutex);
  return state_->queue.nearly_full();
}

std::uint64_t OutputWriter::written() const {
  return state_->written;
}

std::uint64_t OutputWriter::missing() {
  const std::lock_guard lock(state_->mutex);
  const std::uint64_t in_hand = state_->busy         ? state_->chunk_end - state_->written
                                : state_->unfinished ? state_->unfinished->bytes.size()
                                                     : 0;
  return state_->queue.size() + in_hand + state_->queue.take_dropped();
}

void OutputWriter::when_idle(std::function<void()> idle) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->queue.empty()) State::start(state_);
  if (!state_->started) state_->write_what_goes(kNoThreadPatienceMs);
  if (state_->queue.empty() && !state_->unfinished && !state_->busy) {
    state_->tell(std::move(idle));
  } else {
    state_->idle.push_back(std::move(idle));
  }
}

}  // namespace muster::agent
