// SPDX-License-Identifier: Apache-2.0
#include "proto/transport/tls.h"

#include <condition_variable>
#include <list>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "proto/transport/tls_context.h"
#include "proto/transport/tls_pump.h"

namespace muster::transport {
namespace {

constexpr Duration kLastWords = 500ms;

using Context = std::shared_ptr<boost::asio::ssl::context>;

}  // namespace

struct Tls::State {
  State(TlsFiles from, std::function<void(const std::string&)> say_line)
      : files(std::move(from)), say(std::move(say_line)) {}

  // ---- any thread

  void begin(File socket, TlsPump::Plan plan) {
    if (!start_thread()) {
      return plan.done({TlsResult::Kind::kBroken, {}, "no thread for TLS can be started"});
    }
    boost::asio::post(io, [this, socket = std::move(socket), plan = std::move(plan)]() mutable {
      pump(std::move(socket), std::move(plan));
    });
  }

  bool start_thread() {
    const std::lock_guard lock(mutex);
    if (thread.joinable()) return true;
    try {
      thread = std::thread([this] { io.run(); });
    } catch (const std::system_error&) {
      return false;
    }
    return true;
  }

  void end() {
    if (!thread.joinable()) return;
    boost::asio::post(io, [this] {
      ending = true;
      end_pumps([](const TlsPump& pump) { return pump.is_shaking_hands(); });
      leave_when_empty();
    });
    {
      std::unique_lock lock(mutex);
      empty.wait_for(lock, kLastWords, [this] { return is_empty; });
    }
    io.stop();
    thread.join();
    end_pumps([](const TlsPump&) { return true; });
  }

  // ---- the TLS thread

  void pump(File socket, TlsPump::Plan plan) {
    if (ending) return;
    refresh();
    const auto place = pumps.emplace(pumps.end());
    plan.ended = [this, place] {
      pumps.erase(place);
      leave_when_empty();
    };
    *place = TlsPump::start(io, context, std::move(socket), std::move(plan));
  }

  template <class Which>
  void end_pumps(Which which) {
    const auto all = pumps;  // each takes itself off
    for (const auto& pump : all) {
      if (which(*pump)) pump->end();
    }
  }

  void leave_when_empty() {
    if (!ending || !pumps.empty()) return;
    const std::lock_guard lock(mutex);
    is_empty = true;
    empty.notify_all();
  }

  // A file is replaced after another: until they fit together again the old ones serve.
  void refresh() {
    const std::string now = stamp_of(files);
    if (now.empty() || now == stamp) return;
    stamp = now;
    absl::StatusOr<Context> fresh = make_tls_context(files);
    if (fresh.ok()) {
      context = *std::move(fresh);
    } else if (say) {
      say("TLS goes on with the certificates that it had: " +
          std::string(fresh.status().message()));
    }
  }

  const TlsFiles files;
  const std::function<void(const std::string&)> say;
  std::string stamp;
  Context context;
  boost::asio::io_context io{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{io.get_executor()};
  std::list<std::shared_ptr<TlsPump>> pumps;
  bool ending = false;
  std::mutex mutex;  // guards what follows
  std::condition_variable empty;
  bool is_empty = false;
  std::thread thread;
};

Tls::Tls(std::unique_ptr<State> state) : state_(std::move(state)) {}

Tls::~Tls() {
  state_->end();
}

absl::StatusOr<std::shared_ptr<Tls>> Tls::load(TlsFiles files,
                                               std::function<void(const std::string&)> say) {
  auto state = std::make_unique<State>(std::move(files), std::move(say));
  state->stamp = stamp_of(state->files);
  absl::StatusOr<Context> context = make_tls_context(state->files);
  if (!context.ok()) return context.status();
  state->context = *std::move(context);
  return std::shared_ptr<Tls>(new Tls(std::move(state)));
}

namespace {

std::function<void(TlsResult)> through(std::shared_ptr<LoopDoor> loop, Tls::Done done) {
  return [loop = std::move(loop), done = std::move(done)](TlsResult result) mutable {
    loop->post([done = std::move(done), result = std::move(result)]() mutable {
      done(std::move(result));
    });
  };
}

}  // namespace

void Tls::connect(std::shared_ptr<LoopDoor> loop, File socket, const std::string& host,
                  Duration timeout, Done done) {
  state_->begin(std::move(socket),
                {false, host, timeout, through(std::move(loop), std::move(done)), nullptr});
}

void Tls::accept(std::shared_ptr<LoopDoor> loop, File socket, Duration timeout, Done done) {
  state_->begin(std::move(socket),
                {true, "", timeout, through(std::move(loop), std::move(done)), nullptr});
}

}  // namespace muster::transport
