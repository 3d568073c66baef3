// SPDX-License-Identifier: Apache-2.0
//
// An io loop on a thread of its own, and agents to talk to it. Nothing sleeps: tests wait until
// what they expect has been said, with a limit that only a failure reaches.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "launcher/rendezvous/shell/server_core.h"
#include "proto/base/messages.h"

namespace muster::test {

inline constexpr std::chrono::seconds kLimit{30};

class IoThread {
 public:
  IoThread() : work_(io_.get_executor()), thread_([this] { io_.run(); }) {}
  ~IoThread() {
    work_.reset();
    io_.stop();
    thread_.join();
  }
  IoThread(const IoThread&) = delete;
  IoThread& operator=(const IoThread&) = delete;

  boost::asio::io_context& io() { return io_; }

  // Runs `what` on the io thread and returns what it returns.
  template <class What>
  auto on_io(What what) -> decltype(what()) {
    std::packaged_task<decltype(what())()> task(std::move(what));
    auto result = task.get_future();
    boost::asio::post(io_, [&task] { task(); });
    return result.get();
  }

 private:
  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::thread thread_;
};

// A queue that the io thread fills and the test empties. Copies are the same queue: who fills it
// keeps one, and may outlive the test's.
template <class T>
class Inbox {
 public:
  void put(T value) const {
    const std::lock_guard lock(state_->mutex);
    state_->values.push_back(std::move(value));
    state_->changed.notify_all();
  }

  // The next value; nullopt if none came within kLimit.
  std::optional<T> next() {
    State& state = *state_;
    std::unique_lock lock(state.mutex);
    if (!state.changed.wait_for(lock, kLimit, [&] { return !state.values.empty(); })) {
      return std::nullopt;
    }
    T value = std::move(state.values.front());
    state.values.pop_front();
    return value;
  }

  std::size_t size() const {
    const std::lock_guard lock(state_->mutex);
    return state_->values.size();
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<T> values;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// What an agent heard.
struct Heard {
  Inbox<ServerMessage> said;
  Inbox<StoreReply> store;
  Inbox<std::string> closed;

  // Skips to the next message with this body; nullopt if none comes.
  template <class Body>
  std::optional<Body> next() {
    for (;;) {
      const std::optional<ServerMessage> message = said.next();
      if (!message) return std::nullopt;
      if (const auto* body = std::get_if<Body>(&message->body)) {
        last = message->envelope;
        return *body;
      }
    }
  }
  Envelope last;  // of what next() returned
};

AgentMessage join_message(const JobId& job, const NodeName& node, std::uint32_t min_nodes,
                          std::uint32_t max_nodes);

// A message of a member, with the envelope the server last used.
AgentMessage message_from(const Envelope& envelope, AgentBody body);

rendezvous::ServerOptions server_options();

// Descriptors of this process that are open now.
std::size_t open_descriptors();

// A directory of its own, removed with everything in it.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Calls `holds` until it does; false if it never did within kLimit.
bool eventually(const std::function<bool()>& holds);

}  // namespace muster::test
