// SPDX-License-Identifier: Apache-2.0
//
// The network between the server and the agents: streams, and what keeps them from getting through.
#include <algorithm>

#include "tests/sim/node.h"
#include "tests/sim/world.h"

namespace muster::sim {

namespace {

// What is longer under way seems to have happened later than it did.
constexpr Duration kOrdinaryDelay = 20ms;

}  // namespace

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
  when = std::max(when, barriers_[stream->node].to_server);
  stream->last_to_server = when = std::max(when, stream->stalled_until);
  if (when > clock.now() + kOrdinaryDelay) checks.ages_inexact_until(when);
  clock.at(when, [this, stream, message = std::move(message)]() mutable {
    if (stream->cut_at && clock.now() >= *stream->cut_at) return;
    if (stream->to_server_lost && clock.now() >= *stream->to_server_lost) return;
    if (!server_ || stream->server_life != server_life_ || !stream->server_open) return;
    step_server(rendezvous::AgentSaid{stream->session, stream->peer, std::move(message)});
  });
}

void World::send_to_agent(const StreamPtr& stream, ServerMessage message) {
  Instant when = std::max(clock.now() + delay(), stream->last_to_agent);
  when = std::max(when, barriers_[stream->node].to_agent);
  stream->last_to_agent = when = std::max(when, stream->stalled_until);
  clock.at(when, [this, stream, message = std::move(message)]() mutable {
    if (stream->cut_at && clock.now() >= *stream->cut_at) return;
    if (stream->to_agent_lost && clock.now() >= *stream->to_agent_lost) return;
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
  if (stream->to_server_lost) return;  // it must notice by itself
  const Instant when = std::max(clock.now() + delay(), barriers_[stream->node].to_server);
  clock.at(std::max(when, stream->last_to_server), [this, stream] { lose_at_server(stream); });
}

void World::close_by_server(SessionId session) {
  const auto found = streams_.find(session);
  if (found == streams_.end()) return;
  const StreamPtr stream = found->second;
  Instant when = std::max(clock.now() + delay(), stream->last_to_agent);
  when = std::max(when, barriers_[stream->node].to_agent);
  clock.at(when, [this, stream] {
    if (!stream->to_agent_lost) nodes_[stream->node]->link_down(stream, "closed by the server");
    lose_at_server(stream);
  });
}

void World::cut(const StreamPtr& stream, Duration agent_notices, Duration server_notices) {
  if (!stream->cut_at) stream->cut_at = clock.now();
  notice_end(stream, agent_notices, server_notices);
}

// The word of it does not get through a partition either.
void World::notice_end(const StreamPtr& stream, Duration agent, Duration server) {
  const Barrier& barrier = barriers_[stream->node];
  clock.at(std::max(clock.now() + agent, barrier.to_agent),
           [this, stream] { nodes_[stream->node]->link_down(stream, "connection reset"); });
  clock.at(std::max(clock.now() + server, barrier.to_server),
           [this, stream] { lose_at_server(stream); });
}

// ---------------------------------------------------------------- partitions

// Neither end is told. Of the streams that are open either the network sends what it could not
// deliver again, or they never carry anything that way any more, until pings go unanswered.
void World::bar(std::size_t node, bool to_server, bool to_agent, Duration length) {
  if (options.hosted && node == 0) return;  // it reaches the server without the network
  ++checks.tally[to_server && to_agent ? "nodes cut off" : "nodes cut off one way"];
  Barrier& barrier = barriers_[node];
  const Instant until = clock.now() + length;
  if (to_server) barrier.to_server = std::max(barrier.to_server, until);
  if (to_agent) barrier.to_agent = std::max(barrier.to_agent, until);
  const StreamPtr stream = nodes_[node]->stream();
  if (!stream || rng.below(2) == 0) return;
  if (to_server && !stream->to_server_lost) stream->to_server_lost = clock.now();
  if (to_agent && !stream->to_agent_lost) stream->to_agent_lost = clock.now();
  notice_end(stream, between(10s, 20s), between(10s, 20s));
}

// A connection is made by words in both directions, which are sent again and again.
Instant World::reachable_at(std::size_t node) const {
  return std::max(barriers_[node].to_server, barriers_[node].to_agent);
}

void World::bar_one_way(std::size_t node) {
  const bool to_server = rng.below(2) == 0;
  const Duration length = between(500ms, 20s);
  note("fault", [&] {
    return "for " + format_duration(length) + " nothing gets " + (to_server ? "from " : "to ") +
           nodes_[node]->truth().name;
  });
  bar(node, to_server, !to_server, length);
}

// One node, some, or all.
void World::partition() {
  const Duration length = between(500ms, 20s);
  const std::uint64_t manner = rng.below(3);
  const std::size_t one = rng.below(nodes_.size());
  std::string who;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (manner == 0 && i != one) continue;
    if (manner == 1 && rng.below(2) == 0) continue;
    who += " " + nodes_[i]->truth().name;
    bar(i, true, true, length);
  }
  note("fault", [&] { return "for " + format_duration(length) + " nobody reaches" + who; });
}

// ---------------------------------------------------------------- the end of an agent

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
