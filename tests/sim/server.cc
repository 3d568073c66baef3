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
  server_options.unix_us_at_origin =
      1'700'000'000'000'000 + static_cast<std::int64_t>(server_life_);
  if (options.hosted) server_options.only_job = "j";
  server_ = std::make_unique<rendezvous::Rendezvous>(server_options, Rng(rng.next()));
  server_ends_with_host_ = false;
  crashes_in_step_ = false;
  checks.server_started();
  model_.server_started(options.journaled);
  reasons_.server_started(options.journaled);
  note("server", "starts");
  if (!options.journaled) journal_.clear();
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
  std::vector<rendezvous::Action> actions =
      planted.changes_what_is_heard() ? step_changed(event) : server_->step(event, server_now());
  planted.orders(actions);
  ++steps_;
  const bool dies = crashes_in_step_ && !actions.empty();
  if (dies && rng.below(4) == 0) return crash_server();  // before anything was written
  rendezvous::write_down(actions, journal_);
  if (on_journal) on_journal(actions, journal_);
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
  if (const auto misfit = reasons_.stepped(event, actions)) checks.fail(*misfit);
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
  const std::uint64_t timer = ++server_timer_;
  if (!next) return;
  if (ticked) server_spins_ = *next <= server_now() ? server_spins_ + 1 : 0;
  if (server_spins_ > 100) {
    checks.fail("the server wants a tick again and again");
    return;
  }
  clock.at(*next + server_stalled_, [this, timer, life = server_life_] {
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
  if (options.hosted) nodes_[0]->freeze(length);
  server_stalls_ = true;
  clock.after(length, [this, length, life = server_life_] {
    if (!server_ || server_life_ != life) return;
    server_stalls_ = false;
    server_stalled_ += length;
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

// ---------------------------------------------------------------- streams

Duration World::delay() {
  if (chance(options.slow_messages)) return between(50ms, 1500ms);
  return between(100us, 3ms);
}

StreamPtr World::connect(std::size_t node, std::uint64_t agent_life) {
  if (!server_ || server_stalls_) return nullptr;
  auto stream = std::make_shared<Stream>();
  stream->session = ++last_session_;
  stream->node = node;
  stream->agent_life = agent_life;
  stream->server_life = server_life_;
  if (!options.hosted || node > 0) stream->peer = node_address(node);
  streams_[stream->session] = stream;
  return stream;
}

void World::send_to_server(const StreamPtr& stream, AgentMessage message) {
  Instant when = std::max(clock.now() + delay(), stream->last_to_server);
  stream->last_to_server = when = std::max(when, stream->stalled_until);
  clock.at(when, [this, stream, message = std::move(message)]() mutable {
    if (stream->cut_at && clock.now() >= *stream->cut_at) return;
    if (!server_ || stream->server_life != server_life_ || !stream->server_open) return;
    step_server(rendezvous::AgentSaid{stream->session, stream->peer, std::move(message)});
  });
}

void World::send_to_agent(const StreamPtr& stream, ServerMessage message) {
  Instant when = std::max(clock.now() + delay(), stream->last_to_agent);
  stream->last_to_agent = when = std::max(when, stream->stalled_until);
  clock.at(when, [this, stream, message = std::move(message)]() mutable {
    if (stream->cut_at && clock.now() >= *stream->cut_at) return;
    nodes_[stream->node]->said(stream, std::move(message));
  });
}

void World::lose_at_server(const StreamPtr& stream) {
  if (!stream->server_open) return;
  stream->server_open = false;
  streams_.erase(stream->session);
  if (server_ && stream->server_life == server_life_) {
    step_server(rendezvous::StreamLost{stream->session});
  }
}

// What was sent before still arrives; then the other side is told.
void World::close_by_agent(const StreamPtr& stream) {
  stream->agent_open = false;
  clock.at(std::max(clock.now() + delay(), stream->last_to_server),
           [this, stream] { lose_at_server(stream); });
}

void World::close_by_server(SessionId session) {
  const auto found = streams_.find(session);
  if (found == streams_.end()) return;
  const StreamPtr stream = found->second;
  clock.at(std::max(clock.now() + delay(), stream->last_to_agent), [this, stream] {
    nodes_[stream->node]->link_down(stream, "closed by the server");
    lose_at_server(stream);
  });
}

void World::cut(const StreamPtr& stream, Duration agent_notices, Duration server_notices) {
  if (!stream->cut_at) stream->cut_at = clock.now();
  clock.after(agent_notices,
              [this, stream] { nodes_[stream->node]->link_down(stream, "connection reset"); });
  clock.after(server_notices, [this, stream] { lose_at_server(stream); });
}

// The last words of a process are on their way already; its death is seen by the other side.
void World::agent_ended(std::size_t node) {
  std::vector<StreamPtr> open;
  for (const auto& [session, stream] : streams_) {
    if (stream->node == node && stream->agent_open) open.push_back(stream);
  }
  for (const StreamPtr& stream : open)
    close_by_agent(stream);
  if (options.hosted && node == 0 && server_) {
    // The hosting process stays until everyone has read the outcome (JobOver); without an
    // outcome it tells the others that it goes, and goes.
    const bool finished = [&] {
      for (const rendezvous::JobView& job : server_->view(server_now())) {
        if (!job.outcome) return false;
      }
      return true;
    }();
    server_ends_with_host_ = true;
    if (!finished) {
      step_server(rendezvous::ServerStopping{"its host ends"});
      clock.after(between(5ms, 50ms), [this, life = server_life_] {
        if (server_life_ == life) kill_server();
      });
    }
  }
  if (chance(options.restarts)) {
    clock.after(between(100ms, 3s), [this, node] {
      if (quiet || nodes_[node]->runs()) return;
      if (options.hosted && node == 0) start_server();
      nodes_[node]->start_agent();
    });
  }
}

}  // namespace muster::sim
