// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/end_batch.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "proto/base/check.h"
#include "proto/base/failure.h"

namespace muster::agent {

struct EndBatch::State : std::enable_shared_from_this<EndBatch::State> {
  explicit State(boost::asio::io_context& io) : timer(io) {}

  struct End {
    int rank = 0;  // less is told first
    Instant began;
    std::optional<Instant> spoke;
    std::function<void()> tell;
  };

  boost::asio::steady_timer timer;
  bool open = false;
  std::set<pid_t> waits_for;
  std::vector<End> ends;

  void close() {
    open = false;
    timer.cancel();
    waits_for.clear();
    std::vector<End> told = std::exchange(ends, {});
    // Words of some say nothing about those that are silent.
    std::set<int> silent;
    for (const End& end : told) {
      if (!end.spoke) silent.insert(end.rank);
    }
    for (End& end : told) {
      if (!silent.contains(end.rank)) end.began = *end.spoke;
    }
    std::stable_sort(told.begin(), told.end(), [](const End& a, const End& b) {
      return std::tie(a.rank, a.began) < std::tie(b.rank, b.began);
    });
    for (const End& end : told)
      end.tell();
  }
};

EndBatch::EndBatch(boost::asio::io_context& io) : state_(std::make_shared<State>(io)) {}

EndBatch::~EndBatch() {
  state_->timer.cancel();
}

bool EndBatch::open() const {
  return state_->open;
}

void EndBatch::begin(std::set<pid_t> waits_for, Duration patience) {
  MUSTER_CHECK(!state_->open && !waits_for.empty());
  state_->open = true;
  state_->waits_for = std::move(waits_for);
  state_->timer.expires_after(patience);
  state_->timer.async_wait([weak = std::weak_ptr(state_)](const boost::system::error_code& error) {
    const auto state = weak.lock();
    if (!error && state && state->open) state->close();
  });
}

bool EndBatch::all_reactions() const {
  const auto is_one = [](const State::End& end) {
    return end.rank == static_cast<int>(Evidence::kReaction);
  };
  return std::all_of(state_->ends.begin(), state_->ends.end(), is_one);
}

void EndBatch::narrow(const std::set<pid_t>& waits_for) {
  MUSTER_CHECK(state_->open);
  std::erase_if(state_->waits_for, [&](pid_t pid) { return !waits_for.contains(pid); });
}

void EndBatch::add(pid_t pid, const ExitStatus& status, Instant began, std::optional<Instant> spoke,
                   std::function<void()> tell) {
  if (!state_->open) return tell();
  state_->waits_for.erase(pid);
  // A success is nobody's cause: it comes last.
  const int rank = status.succeeded() ? 3 : static_cast<int>(evidence_of(status));
  state_->ends.push_back({rank, began, spoke, std::move(tell)});
  if (state_->waits_for.empty()) state_->close();
}

}  // namespace muster::agent
