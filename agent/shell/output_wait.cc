// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/output_wait.h"

#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/shell/io_loop.h"

namespace muster::agent {
namespace {

// How often a console that does not take everything is looked at.
constexpr Duration kLook = 50ms;

// One wait for what is queued.
struct Wait {
  explicit Wait(boost::asio::io_context& io) : timer(io) {}

  boost::asio::steady_timer timer;  // when to look again
  Duration patience{0};
  Instant end;
  std::function<void()> done;

  void finish() {
    timer.cancel();
    if (auto call = std::exchange(done, nullptr)) call();
  }
};

}  // namespace

struct OutputWait::State : std::enable_shared_from_this<OutputWait::State> {
  State(boost::asio::io_context& context, std::vector<std::shared_ptr<ConsoleSurface>> consoles,
        std::shared_ptr<OutputWriter> log)
      : io(context),
        surfaces(std::move(consoles)),
        log_writer(std::move(log)),
        log_watch(*log_writer, -1) {}

  boost::asio::io_context& io;
  std::vector<std::shared_ptr<ConsoleSurface>> surfaces;
  std::shared_ptr<OutputWriter> log_writer;
  WriterWatch log_watch;
  std::vector<std::weak_ptr<Wait>> waits;

  // True while somebody takes what waits, or may soon.
  bool may_go_on(const Wait& wait, Instant now) {
    if (now >= wait.end) return false;
    bool some = now - log_watch.moved_at(now) < wait.patience && !log_writer->idle();
    for (const auto& surface : surfaces) {
      const bool moves = now - surface->watch.moved_at(now) < wait.patience;
      some |= moves && !surface->writer.idle();
    }
    return some;
  }

  void look_again(const std::shared_ptr<Wait>& wait) {
    wait->timer.expires_after(kLook);
    wait->timer.async_wait([self = weak_from_this(), wait](const boost::system::error_code& error) {
      const auto state = self.lock();
      if (error || !state || !wait->done) return;
      if (!state->may_go_on(*wait, IoLoop::now())) return wait->finish();
      state->look_again(wait);
    });
  }
};

OutputWait::OutputWait(boost::asio::io_context& io,
                       std::vector<std::shared_ptr<ConsoleSurface>> surfaces,
                       std::shared_ptr<OutputWriter> log_writer)
    : state_(std::make_shared<State>(io, std::move(surfaces), std::move(log_writer))) {}

OutputWait::~OutputWait() = default;

void OutputWait::start(Duration patience, Duration limit, std::function<void()> done) {
  auto wait = std::make_shared<Wait>(state_->io);
  wait->patience = patience;
  wait->end = IoLoop::now() + limit;
  wait->done = std::move(done);
  std::erase_if(state_->waits, [](const auto& past) { return past.expired(); });
  state_->waits.push_back(wait);
  state_->look_again(wait);
  // The log first: what it cannot take goes to the console.
  state_->log_writer->when_idle([self = std::weak_ptr(state_), wait] {
    const auto state = self.lock();
    if (!state) return;
    auto left = std::make_shared<std::size_t>(state->surfaces.size());
    for (const auto& surface : state->surfaces) {
      surface->writer.when_idle([left, wait] {
        if (--*left == 0) wait->finish();
      });
    }
  });
}

void OutputWait::give_up() {
  for (const auto& waiting : std::exchange(state_->waits, {})) {
    if (const auto wait = waiting.lock()) {
      boost::asio::post(state_->io, [wait] { wait->finish(); });
    }
  }
}

}  // namespace muster::agent
