// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/wire/random_messages.h"

#include <limits>

namespace muster::test {

std::string RandomMessages::name(bool may_be_empty) {
  static constexpr char kLetters[] = "abcXYZ019-_./: \xc3\xa4\xff";  // UTF-8 and not
  std::string out;
  const std::uint64_t size = rng_.below(20) + (may_be_empty ? 0 : 1);
  for (std::uint64_t i = 0; i < size; ++i)
    out.push_back(kLetters[rng_.below(sizeof kLetters - 1)]);
  return out;
}

std::string RandomMessages::noise(std::size_t most) {
  std::string out;
  const std::uint64_t size = rng_.below(most + 1);
  for (std::uint64_t i = 0; i < size; ++i)
    out.push_back(static_cast<char>(rng_.below(256)));
  return out;
}

std::string RandomMessages::text(std::size_t most) {
  return noise(most);
}

void RandomMessages::damage(std::string& bytes) {
  switch (rng_.below(4)) {
    case 0:
      if (!bytes.empty()) bytes.resize(rng_.below(bytes.size()));
      break;
    case 1: bytes += noise(8); break;
    default:
      if (!bytes.empty()) bytes[rng_.below(bytes.size())] = static_cast<char>(rng_.below(256));
  }
}

Envelope RandomMessages::envelope() {
  Envelope out;
  out.job = name(true);
  out.run = name(true);
  out.generation = static_cast<Generation>(rng_.below(1000)) - 1;
  out.node = name(true);
  out.incarnation = rng_.next();
  out.epoch = rng_.next();
  return out;
}

JobPolicy RandomMessages::policy() {
  JobPolicy out;
  out.max_restarts = number(100);
  out.max_restarts_window = maybe<Duration>([&] { return duration(); });
  out.max_node_losses = number(100);
  out.restart_backoff_max = duration();
  out.join_timeout = duration();
  out.last_call = duration();
  out.stop_grace = duration();
  out.heartbeat = duration() + 1ns;
  out.node_timeout = duration() + 1ns;
  out.reconnect_grace = duration();
  out.recovery_window = duration();
  out.server_grace = duration();
  out.linger = coin();
  out.grow = any(Grow::kNever);
  out.grow_interval = duration();
  out.max_spares = maybe<std::uint32_t>([&] { return number(100); });
  out.max_no_progress = number(100);
  out.quarantine = {number(9), duration(), duration()};
  out.fence = any(Fence::kStrict);
  return out;
}

Fault RandomMessages::fault() {
  Fault out;
  out.index = number(1000);
  out.action = any(FaultAction::kDelay);
  out.when.generation = number(100);
  if (coin()) {
    out.when.step = rng_.next();
  } else {
    out.when.after = duration();
  }
  switch (rng_.below(4)) {
    case 0: out.on.rank = number(1000); break;
    case 1: out.on.local_rank = number(1000); break;
    case 2: out.on.random = any(RandomVictim::kNode); break;
    default: out.on.node = name();
  }
  out.signal = static_cast<int>(number(65));
  out.lasts = maybe<Duration>([&] { return duration(); });
  out.exit_code = number(256);
  out.factor = 1 + static_cast<double>(number(999));
  out.by = duration();
  out.direction = any(LinkDirection::kOut);
  out.text = text();
  return out;
}

ArmedFault RandomMessages::armed_fault() {
  return {fault(), maybe<std::uint32_t>([&] { return number(1000); })};
}

JobSpec RandomMessages::spec() {
  JobSpec out;
  out.job = name();
  out.min_nodes = 1 + number(100);
  out.max_nodes = out.min_nodes + number(100);
  out.program = text();
  out.program_hash = rng_.next();
  out.policy = policy();
  out.faults.seed = rng_.next();
  for (std::uint32_t i = number(4); i > 0; --i)
    out.faults.faults.push_back(fault());
  return out;
}

NodeFacts RandomMessages::facts() {
  NodeFacts out;
  out.name = name();
  out.host = name(true);
  out.advertise_addr = name(true);
  out.dialed_addr = name(true);
  out.slots = 1 + number(64);
  out.node_rank = maybe<std::uint32_t>([&] { return number(100); });
  out.scheduler_index = maybe<std::uint32_t>([&] { return number(100); });
  out.scheduler_attempt = name(true);
  out.scheduler_job = name(true);
  out.scheduler_restart = maybe<std::uint32_t>([&] { return number(100); });
  out.boot_id = name(true);
  out.agent_pid = number(1U << 22U);
  out.user = name(true);
  out.hosts_server = coin();
  out.gpus = number(17);
  out.gpu = name(true);
  return out;
}

ExitStatus RandomMessages::exit_status() {
  ExitStatus out;
  out.kind = any(ExitStatus::Kind::kExecFailed);
  out.value = out.kind == ExitStatus::Kind::kSignaled ? 1 + static_cast<int>(number(64))
                                                      : static_cast<int>(number(256));
  out.core_dumped = coin();
  out.detail = text();
  return out;
}

Failure RandomMessages::failure() {
  Failure out;
  out.kind = any(FailureKind::kNodeLost);
  out.node = name(true);
  out.rank = maybe<std::uint32_t>([&] { return number(1000); });
  out.local_rank = maybe<std::uint32_t>([&] { return number(64); });
  out.pid = maybe<std::int64_t>([&] { return std::int64_t{number(1U << 22U)}; });
  out.exit_code = maybe<int>([&] { return static_cast<int>(number(256)); });
  out.signal = maybe<int>([&] { return static_cast<int>(number(65)); });
  out.detail = text();
  out.stderr_tail = text(4096);
  out.error_file = text(2000);
  out.secondary = coin();
  out.ambiguous = coin();
  out.torn_down = coin();
  out.core_dumped = coin();
  out.stacks = text();
  return out;
}

Outcome RandomMessages::outcome() {
  Outcome out;
  out.kind = any(OutcomeKind::kServerLost);
  if (out.kind != OutcomeKind::kSucceeded) out.exit_code = 1 + static_cast<int>(number(255));
  out.exit_class = any(ExitClass::kInternal);
  out.text = text();
  out.first_cause = maybe<Failure>([&] { return failure(); });
  for (std::uint32_t i = number(4); i > 0; --i)
    out.victims.push_back(failure());
  out.restarts_used = number(100);
  out.max_restarts = number(100);
  out.duration = duration();
  out.goodput = rng_.unit();
  return out;
}

std::vector<MemberRanks> RandomMessages::members(std::uint32_t& world_size) {
  std::vector<MemberRanks> out;
  world_size = 0;
  for (std::uint32_t i = 0, n = 1 + number(8); i < n; ++i) {
    const std::uint32_t count = 1 + number(8);
    out.push_back({name(), i, world_size, count});
    world_size += count;
  }
  return out;
}

Assignment RandomMessages::assignment() {
  Assignment out;
  out.generation = number(1000);
  out.members = members(out.world_size);
  out.group_rank = number(static_cast<std::uint32_t>(out.members.size()));
  out.master_addr = name(true);
  out.restarts_used = number(100);
  out.max_restarts = number(100);
  out.reason = any(FormReason::kStateLost);
  for (std::uint32_t i = number(3); i > 0; --i)
    out.faults.push_back(armed_fault());
  return out;
}

RankProgress RandomMessages::progress() {
  return {number(1000), rng_.next(), maybe<std::uint64_t>([&] { return rng_.next(); }), duration()};
}

EventBody RandomMessages::event_body() {
  switch (rng_.below(std::variant_size_v<EventBody>)) {
    case 0: return event::JobStarted{number(9), number(9), number(9)};
    case 1: return event::NodeJoined{name(true), name(true), number(9), coin(), rng_.next()};
    case 2: return event::NodeLeft{any(event::NodeLeft::Why::kDrained)};
    case 3: {
      event::GenerationFormed out;
      out.nodes = members(out.world_size);
      out.master_addr = name(true);
      out.master_port = static_cast<std::uint16_t>(number(65536));
      out.reason = any(FormReason::kStateLost);
      return out;
    }
    case 4: return event::WorkerStarted{text()};
    case 5: {
      event::WorkerEnded out;
      out.exit_code = maybe<int>([&] { return static_cast<int>(number(256)); });
      out.signal = maybe<int>([&] { return static_cast<int>(number(65)); });
      out.torn_down = coin();
      out.max_rss_bytes = rng_.next();
      out.run = duration();
      out.stacks = text();
      return out;
    }
    case 6: return event::GenerationRunning{duration(), duration()};
    case 7: return event::GenerationFailed{failure(), {failure(), failure()}};
    case 8: return event::RestartScheduled{number(9), number(9), coin(), duration()};
    case 9:
      return event::Recovered{duration(), duration(), duration(),
                              duration(), duration(), maybe<Duration>([&] { return duration(); })};
    case 10: return event::ChaosHit{text(), text()};
    case 11: return event::ChaosMissed{text(), text()};
    case 12: return event::StateLost{text()};
    case 13: return event::ServerRecovered{text()};
    case 14: return event::NodeQuarantined{number(1U << 30U), text()};
    case 15: return event::ServerGoing{text()};
    default: return event::JobFinished{outcome()};
  }
}

JobEvent RandomMessages::event() {
  JobEvent out;
  out.generation = maybe<Generation>([&] { return Generation{number(1000)} - 1; });
  out.node = maybe<NodeName>([&] { return name(true); });
  out.rank = maybe<std::uint32_t>([&] { return number(1000); });
  out.local_rank = maybe<std::uint32_t>([&] { return number(64); });
  out.pid = maybe<std::int64_t>([&] { return std::int64_t{number(1U << 22U)}; });
  out.body = event_body();
  return out;
}

Join RandomMessages::join() {
  Join out{spec(), facts(), std::nullopt};
  if (coin()) return out;
  Reattach known;
  known.run = name(true);
  known.incarnation = rng_.next();
  known.generation = Generation{number(1000)} - 1;
  known.workers_running = coin();
  for (std::uint32_t i = number(5); i > 0; --i)
    known.ranks_done.push_back(number(1000));
  known.restarts_used = number(100);
  known.epoch = rng_.next();
  known.leaving = coin();
  out.reattach = known;
  return out;
}

WorkerExited RandomMessages::worker_exited() {
  WorkerExited out;
  out.rank = number(1000);
  out.local_rank = number(64);
  out.pid = number(1U << 22U);
  out.status = exit_status();
  out.torn_down = coin();
  out.oom = coin();
  out.agent_signaled = coin();
  out.parting = coin();
  out.order = rng_.next();
  out.age = duration();
  out.run = duration();
  out.max_rss_bytes = rng_.next();
  out.stderr_tail = text(4096);
  out.error_file = text(2000);
  out.secondary = coin();
  out.stops_agent = coin();
  out.stacks = text();
  if (coin()) {
    out.hang = Hang{coin(), coin(), std::nullopt};
    if (coin()) out.hang->step = rng_.next();
  }
  if (coin()) out.spoke = duration();
  return out;
}

Waiting RandomMessages::waiting() {
  Waiting out{any(Waiting::Why::kFenced), number(9), number(9), {}, number(9), duration(), text()};
  for (std::uint32_t i = number(5); i > 0; --i)
    out.joined.push_back(name());
  return out;
}

AgentMessage RandomMessages::agent_message(std::size_t alternative) {
  AgentMessage out{envelope(), {}};
  switch (alternative) {
    case 0: out.body = join(); break;
    case 1: {
      Heartbeat beat{rng_.next(), {}, coin()};
      for (std::uint32_t i = number(5); i > 0; --i)
        beat.progress.push_back(progress());
      out.body = beat;
      break;
    }
    case 2:
      out.body =
          PrepareAnswer{number(99), coin(), static_cast<std::uint16_t>(number(65536)), text()};
      break;
    case 3: {
      WorkersStarted started{{}, duration()};
      for (std::uint32_t i = number(5); i > 0; --i) {
        started.workers.push_back({number(1000), std::int64_t{number(1U << 22U)}});
      }
      out.body = started;
      break;
    }
    case 4: out.body = worker_exited(); break;
    case 5: out.body = StopConfirmed{coin()}; break;
    case 6: out.body = Leave{static_cast<int>(number(65)), text(), duration()}; break;
    case 7:
      out.body = ChaosFired{number(99), maybe<std::uint32_t>([&] { return number(1000); })};
      break;
    default: out.body = OutcomeSeen{};
  }
  return out;
}

ServerMessage RandomMessages::server_message(std::size_t alternative) {
  ServerMessage out{envelope(), {}};
  switch (alternative) {
    case 0: out.body = JoinAccepted{name(), name(true), any(Role::kSpare), policy()}; break;
    case 1:
      out.body =
          JoinRefused{any(JoinRefused::Why::kNotYet), text(), 1 + static_cast<int>(number(255))};
      break;
    case 2: out.body = waiting(); break;
    case 3: out.body = Prepare{number(99), assignment()}; break;
    case 4: out.body = Commit{number(99), static_cast<std::uint16_t>(number(65536))}; break;
    case 5: out.body = StopOrder{any(StopMode::kDetach), coin(), text()}; break;
    case 6: out.body = HeartbeatAck{rng_.next()}; break;
    case 7: out.body = JobEventNotice{event(), duration()}; break;
    case 8: out.body = OutcomeNotice{outcome()}; break;
    case 9: out.body = Evicted{text(), number(2) == 1}; break;
    case 10: out.body = Stale{text(), envelope()}; break;
    default: out.body = ServerLeaving{text()};
  }
  return out;
}

StoreRequest RandomMessages::store_request() {
  StoreRequest out;
  out.id = rng_.next();
  out.generation = Generation{number(1000)} - 1;
  out.op = any(StoreRequest::Op::kCancel);
  out.key = "k" + noise(100);
  out.value = noise(1000);
  out.delta = static_cast<std::int64_t>(rng_.next());
  out.wait = duration();
  return out;
}

StoreReply RandomMessages::store_reply() {
  StoreReply out;
  out.id = rng_.next();
  out.status = any(StoreReply::Status::kRefused);
  out.value = noise(1000);
  out.number = static_cast<std::int64_t>(rng_.next());
  out.text = text();
  return out;
}

}  // namespace muster::test
