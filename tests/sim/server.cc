// SPDX-License-Identifier: Apache-2.0
//
// The host of the Rendezvous, and the network between it and the agents.
#include <algorithm>

#include "tests/sim/node.h"
#include "tests/sim/trace.h"
#include "tests/sim/world.h"

namespace muster::sim {

// ---------------------------------------------------------------- the server process

void World::start_server() {
  if (server_) return;
  rendezvous::Options server_options;
  ++server_life_;
  server_options.server_instance = "server-" + std::to_string(server_life_);
  server_options.holder = "host s, pid " + std::to_string(server_life_);
  if (options.wall_steps > 0 && server_life_ > 1 && chance(options.wall_steps)) {
    const Duration length = rng.below(2) == 0 ? between(100ms, 20s) : between(20s, 2h);
    const bool ahead = rng.below(2) == 0;
    wall_step_ += ahead ? length : -length;
    checks.wall_stepped(ahead);
    note("fault", [&] {
      return std::string("the time of day steps ") + (ahead ? "ahead" : "back") + " by " +
             format_duration(length);
    });
  }
  server_options.unix_us_at_origin =
      1'700'000'000'000'000 + static_cast<std::int64_t>(server_life_) +
      std::chrono::duration_cast<std::chrono::microseconds>(wall_step_).count();
  if (options.hosted) server_options.only_job = "j";
  server_ = std::make_unique<rendezvous::Rendezvous>(server_options, Rng(rng.next()));
  server_due_.reset();
  server_ends_with_host_ = false;
  crashes_in_step_ = false;
  checks.server_started();
  model_.server_started(options.journaled);
  reasons_.server_started(options.journaled);
  note("server", "starts");
  if (!options.journaled) journal_.clear();
  if (memories_.empty()) remember();
  if (options.journaled) step_server(rendezvous::JournalRead{journal_});
}

void World::kill_server() {
  if (!server_) return;
  note("server", "ends");
  server_.reset();
  server_stalls_ = false;
  server_unread_.clear();
  ends_unread_ = 0;
  std::map<SessionId, StreamPtr> streams;
  streams.swap(streams_);
  for (const auto& [session, stream] : streams) {
    stream->server_open = false;
    cut(stream, between(1ms, 20ms), 1h);
  }
}

void World::step_server(const rendezvous::Event& event) {
  if (server_stalls_) {
    if (std::holds_alternative<rendezvous::StreamLost>(event)) ++ends_unread_;
    return server_unread_.push_back(event);
  }
  if (!std::holds_alternative<rendezvous::Tick>(event)) {
    note("server", [&] { return text(event); });
  }
  constexpr Duration kStall = 500ms;  // a deadline that is seen later: the server stood still
  if (server_due_ && server_now() > *server_due_ + kStall) {
    model_.stalled(server_now() - *server_due_);
  }
  std::vector<rendezvous::Action> actions =
      planted.changes_what_is_heard() ? step_changed(event) : server_->step(event, server_now());
  planted.orders(actions);
  ++steps_;
  const bool dies = crashes_in_step_ && !actions.empty();
  if (dies && rng.below(4) == 0) return crash_server();  // before anything was written
  rendezvous::write_down(actions, journal_);
  if (on_journal) on_journal(actions, journal_);
  checks.server_wrote(event, actions);
  if (dies) {
    // What was written stands; of the rest the first part left before the end.
    const std::vector<rendezvous::Action> decided = actions;
    actions.resize(rng.below(actions.size() + 1));
    checks.server_stepped(event, actions, true);
    judge(event, decided);
  } else {
    checks.server_stepped(event, actions, false);
    judge(event, actions);
  }
  if (std::any_of(actions.begin(), actions.end(), [](const auto& action) {
        return std::holds_alternative<rendezvous::Persist>(action);
      })) {
    remember();
  }
  for (rendezvous::Action& action : actions) {
    note("server", [&] { return "  " + text(action); });
    carry_out(std::move(action));
  }
  if (dies) return crash_server();
  arm_server_timer(std::holds_alternative<rendezvous::Tick>(event));
  hear_forged();
}

std::vector<rendezvous::Action> World::step_changed(const rendezvous::Event& event) {
  std::optional<rendezvous::Event> heard = event;
  planted.hears(heard);
  if (!heard) return {};
  return server_->step(*heard, server_now());
}

// Who does not need to see what arrives, only what was decided.
void World::judge(const rendezvous::Event& event, const std::vector<rendezvous::Action>& actions) {
  // All that is known of a large job is compared now and then only: it is long.
  if (steps_ % (1 + nodes_.size() / 16) == 0) {
    std::vector<rendezvous::RunRecord> known = server_->records();
    planted.knows(known);
    checks.journaled(journal_, known);
    const std::size_t connected = server_->connected();
    checks.bounded(known, connected, streams_.size() + ends_unread_);
    // All of it can be shown at any time; nothing else depends on that.
    if (++judged_ % 16 == 0) checks.shown(server_->view(server_now()), connected);
  }
  const rendezvous::Event nothing = rendezvous::HostStalled{};
  const auto disagreement = model_.stepped(unheard_ ? nothing : event, actions, server_now());
  if (disagreement) checks.fail(*disagreement);
  if (const auto misfit = reasons_.stepped(event, actions, server_now())) checks.fail(*misfit);
}

void World::hear_forged() {
  for (const Planted::Forged& forged : std::exchange(planted.forged, {})) {
    clock.after(0s, [this, forged] {
      if (!server_) return;
      unheard_ = !forged.known;
      step_server(forged.event);
      unheard_ = false;
    });
  }
}

void World::arm_server_timer(bool ticked) {
  const std::optional<Instant> next = server_->next_deadline();
  server_due_ = next;
  const std::uint64_t timer = ++server_timer_;
  if (!next) return;
  if (ticked) server_spins_ = *next <= server_now() ? server_spins_ + 1 : 0;
  if (server_spins_ > 100) {
    checks.fail("the server wants a tick again and again");
    return;
  }
  clock.at(*next + server_behind_, [this, timer, life = server_life_] {
    if (server_ && !server_stalls_ && server_life_ == life && server_timer_ == timer) {
      step_server(rendezvous::Tick{});
    }
  });
}

// As a SIGSTOP of its process: streams stand, and a new one is given up and tried again.
void World::stall_server() {
  if (!server_ || server_stalls_) return;
  const Duration length = between(1s, 12s);
  note("fault", [&] { return "stall the server for " + format_duration(length); });
  checks.ages_inexact_until(clock.now() + length);
  if (options.hosted) nodes_[0]->freeze(length);
  server_stalls_ = true;
  clock.after(length, [this, length, life = server_life_] {
    if (!server_ || server_life_ != life) return;
    server_stalls_ = false;
    server_behind_ += length;
    step_server(rendezvous::HostStalled{length});
    std::vector<rendezvous::Event> unread;
    unread.swap(server_unread_);
    for (const rendezvous::Event& event : unread) {
      if (!server_ || server_life_ != life) break;
      if (std::holds_alternative<rendezvous::StreamLost>(event)) --ends_unread_;
      step_server(event);
    }
    ends_unread_ = 0;
  });
}

// As the end of a pause of its VM: its host tells the machine, or the machine must see it itself.
void World::leap_server() {
  if (!server_ || server_stalls_) return;
  const Duration length = between(600ms, 60s);
  note("fault", [&] { return "the server's clock leaps by " + format_duration(length); });
  if (options.hosted) nodes_[0]->leap(length);
  if (rng.below(2) == 0) return step_server(rendezvous::HostStalled{length});
  server_behind_ -= length;
  checks.server_leapt(length);
  arm_server_timer(false);
}

// ---------------------------------------------------------------- a journal that loses its tail

void World::remember() {
  constexpr std::size_t kKept = 9;
  if (options.lost_tails <= 0 || !options.journaled) return;
  if (memories_.size() == kKept) memories_.erase(memories_.begin());
  memories_.push_back({journal_, model_, reasons_});
}

// REQUIRES: no server runs. The next one is like one that stopped some writes ago.
void World::lose_tail() {
  if (memories_.size() < 2) return;
  const std::size_t writes = 1 + rng.below(memories_.size() - 1);
  note("fault", [&] { return "the last " + std::to_string(writes) + " writes are lost"; });
  memories_.erase(memories_.end() - static_cast<std::ptrdiff_t>(writes), memories_.end());
  journal_ = memories_.back().journal;
  model_ = memories_.back().model;
  reasons_ = memories_.back().reasons;
  checks.tail_lost(journal_);
}

void World::carry_out(rendezvous::Action&& action) {
  if (auto* send = std::get_if<rendezvous::Send>(&action)) {
    const auto stream = streams_.find(send->session);
    if (stream != streams_.end()) send_to_agent(stream->second, std::move(send->message));
  } else if (const auto* close = std::get_if<rendezvous::CloseSession>(&action)) {
    close_by_server(close->session);
  } else if (std::holds_alternative<rendezvous::JobOver>(action) && server_ends_with_host_) {
    clock.after(0s, [this, life = server_life_] {
      if (server_life_ == life) kill_server();
    });
  }
}

}  // namespace muster::sim
