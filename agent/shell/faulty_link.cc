// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/faulty_link.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include <boost/asio/steady_timer.hpp>

namespace muster::agent {
namespace {

using Clock = std::chrono::steady_clock;

// How long an attempt to connect takes to fail where nothing answers.
constexpr Duration kConnectPatience = 1s;

// What goes one way, in order, each when it is due.
class Lane {
 public:
  explicit Lane(boost::asio::io_context& io) : timer_(io) {}

  void partition(Clock::time_point until) { healed_ = std::max(healed_, until); }
  void delay(Duration by, Clock::time_point until) {
    by_ = by;
    delayed_until_ = until;
  }
  bool is_cut() const { return Clock::now() < healed_; }

  void pass(std::function<void()> what) {
    const auto now = Clock::now();
    auto due = std::max(now, healed_);
    if (now < delayed_until_) due = std::max(due, now + by_);
    if (!waiting_.empty()) due = std::max(due, waiting_.back().due);
    if (waiting_.empty() && due <= now) return what();
    waiting_.push_back({due, std::move(what)});
    if (waiting_.size() == 1) wait();
  }

  void clear() {
    ++life_;
    waiting_.clear();
    timer_.cancel();
  }

 private:
  struct Held {
    Clock::time_point due;
    std::function<void()> what;
  };

  // The lane outlives its timer's handlers: clear() is called before it goes.
  void wait() {
    timer_.expires_at(waiting_.front().due);
    timer_.async_wait([this, life = life_](const boost::system::error_code& error) {
      if (!error && life == life_) flush();
    });
  }

  void flush() {
    const std::uint64_t life = life_;
    while (!waiting_.empty() && waiting_.front().due <= Clock::now()) {
      const auto what = std::move(waiting_.front().what);
      waiting_.pop_front();
      what();
      if (life != life_) return;  // closed by what it said
    }
    if (!waiting_.empty()) wait();
  }

  boost::asio::steady_timer timer_;
  std::deque<Held> waiting_;
  Clock::time_point healed_;
  Clock::time_point delayed_until_;
  Duration by_{0};
  std::uint64_t life_ = 0;
};

}  // namespace

struct FaultyLink::State {
  State(boost::asio::io_context& io, std::unique_ptr<ServerLink> real)
      : link(std::move(real)), in(io), out(io), refusal(io) {}

  Callbacks wrapped(Callbacks callbacks) {
    auto shared = std::make_shared<Callbacks>(std::move(callbacks));
    Callbacks through;
    through.up = [this, shared] { in.pass([shared] { shared->up(); }); };
    through.said = [this, shared](ServerMessage message) {
      in.pass([shared, message = std::move(message)] { shared->said(message); });
    };
    through.down = [this, shared](const std::string& reason, bool speaks_muster) {
      is_open = false;  // though it is not known here yet
      in.pass([this, shared, reason, speaks_muster] {
        out.clear();
        shared->down(reason, speaks_muster);
      });
    };
    if (shared->store_said) {
      through.store_said = [this, shared](StoreReply reply) {
        in.pass([shared, reply = std::move(reply)] { shared->store_said(reply); });
      };
    }
    return through;
  }

  std::unique_ptr<ServerLink> link;
  bool is_open = false;  // or opening
  Lane in;
  Lane out;
  boost::asio::steady_timer refusal;
};

FaultyLink::FaultyLink(boost::asio::io_context& io, std::unique_ptr<ServerLink> link)
    : state_(std::make_shared<State>(io, std::move(link))) {}

FaultyLink::~FaultyLink() {
  state_->in.clear();
  state_->out.clear();
  state_->refusal.cancel();
}

void FaultyLink::disturb(const Fault& fault) {
  const auto until =
      fault.lasts ? Clock::now() + *fault.lasts : Clock::time_point(Clock::duration::max());
  for (const auto& [lane, other] :
       {std::pair{&state_->in, LinkDirection::kOut}, std::pair{&state_->out, LinkDirection::kIn}}) {
    if (fault.direction == other) continue;
    if (fault.action == FaultAction::kPartition) {
      lane->partition(until);
    } else {
      lane->delay(fault.by, until);
    }
  }
}

// A handshake needs both ways.
void FaultyLink::open(Callbacks callbacks) {
  if (!state_->in.is_cut() && !state_->out.is_cut()) {
    state_->is_open = true;
    return state_->link->open(state_->wrapped(std::move(callbacks)));
  }
  state_->refusal.expires_after(kConnectPatience);
  state_->refusal.async_wait(
      [down = std::move(callbacks.down)](const boost::system::error_code& error) {
        if (!error) down("no answer in time (the fault plan's partition)", true);
      });
}

void FaultyLink::send(AgentMessage message) {
  state_->out.pass([state = state_.get(), message = std::move(message)] {
    if (state->is_open) state->link->send(message);
  });
}

void FaultyLink::store(StoreRequest request) {
  state_->out.pass([state = state_.get(), request = std::move(request)] {
    if (state->is_open) state->link->store(request);
  });
}

void FaultyLink::close() {
  state_->refusal.cancel();
  state_->in.clear();
  state_->out.clear();
  if (std::exchange(state_->is_open, false)) state_->link->close();
}

}  // namespace muster::agent
