// SPDX-License-Identifier: Apache-2.0
//
// Plays rendezvous_*.txt. Nodes are labels ("a"); a label is one life of an agent and keeps what
// the server told it, so that events need no envelopes. Commands:
//
//   server only=JOB holder=TEXT         before the first join
//   job nnodes=2 | nnodes=1:2 …         what later joins ask for: restarts, window, losses,
//                                       backoff, join_timeout, last_call, stop_grace, node_timeout,
//                                       reconnect_grace, recovery_window, server_grace, program,
//                                       id, grow, grow_interval, spares,
//                                       no_progress, quarantine, quarantine_window, cooldown,
//                                       fence
//   fault do=kill|stop|kill-agent generation= step= after= rank= local_rank= node=
//   join LABEL node= slots= host= addr= dial= advertise= rank= index= attempt=
//   of=SCHEDULER-JOB restart=COUNT boot= hosts=yes
//   reattach LABEL node= run= incarnation= generation= running= leaving= done= restarts= epoch=
//   prepared LABEL… port= no=REASON attempt= generation=
//   started LABEL… · stopped LABEL… · seen LABEL… · drop LABEL…
//   exited LABEL rank= code= | signal= | exec=ERRNO torn= parting= oom= signaled= stops= secondary=
//   order= age= tail=
//   leave LABEL signal=TERM age= · fired LABEL fault= rank= · beat LABEL step= checkpoint= age=
//   mute LABEL… · unmute LABEL…         its automatic heartbeats (1 s; acks are not shown)
//   stop id= by= · scale min= max= · drain NODE · rerun     as an operator asks
//   leaving reason= · stalled by= (of time that is not counted) · view · tick ·
//   restart journal=yes|no lost=WRITES  (the last ones, as by a power cut)
//
// Addresses are 10.0.0.1, 10.0.0.2, … in order of first joining. Run ids are shown as run-1, ….
#include <algorithm>
#include <utility>

#include "launcher/rendezvous/core/rendezvous.h"
#include "tests/scenario/rendezvous_commands.h"
#include "tests/scenario/runner.h"
#include "tests/scenario/words.h"

namespace muster::scenario {

namespace {

const char* answer_word(rendezvous::OrderAnswer::Kind kind) {
  switch (kind) {
    case rendezvous::OrderAnswer::Kind::kDone: return "accepted";
    case rendezvous::OrderAnswer::Kind::kUnknown: return "unknown";
    case rendezvous::OrderAnswer::Kind::kRefused: break;
  }
  return "refused";
}

using rendezvous::Rendezvous;

constexpr std::int64_t kOrigin = 1768642200000000;  // 2026-01-17T09:30:00Z
constexpr Duration kBeat = 1s;

struct Label {
  NodeFacts facts;
  JobSpec spec;
  std::string peer;
  SessionId session = 0;
  bool attached = false;
  bool muted = false;
  std::uint64_t sequence = 0;
  Instant beat_at;
  Envelope known;  // as the server last said
  Reattach reattach;
  std::optional<Prepare> prepare;
  Generation prepared_generation = kNoGeneration;
  std::vector<MemberRanks> ranks;  // of the generation committed last
};

class RendezvousAdapter : public Adapter {
 public:
  Transcript run(Command& command, Instant now) override;
  std::optional<Instant> next_deadline() const override;
  Transcript tick(Instant now) override;

 private:
  Rendezvous& machine();
  Transcript step(const rendezvous::Event& event, Instant now, bool show_acks = false);
  void learn(SessionId session, const ServerMessage& message);
  std::string shown(std::string text);
  std::string name_of(SessionId session) const;
  Label* need(const std::string& label, Command& command);

  Transcript join(Command& command, Instant now, bool again);
  Transcript say(const std::string& name, AgentBody body, Instant now,
                 std::optional<Generation> generation = std::nullopt);
  Transcript prepared(const std::string& name, Command& command, Instant now);
  Transcript started(const std::string& name, Instant now);
  Transcript exited(Command& command, Instant now);
  Transcript beat(Command& command, Instant now);
  Transcript ordered(rendezvous::Order order, const JobId& id, Instant now,
                     const std::string& by = "ann") {
    return step(rendezvous::OperatorAsked{++requests_, id, by, std::move(order)}, now);
  }
  Transcript view(Instant now);
  Transcript for_each(Command& command, Instant now);
  Transcript rest(Command& command, Instant now);

  std::optional<Rendezvous> machine_;
  rendezvous::Options options_;
  JobSpec spec_ = first_spec();
  std::map<std::string, Label> labels_;
  std::map<NodeName, std::string> addresses_;
  SessionId last_session_ = 0;
  std::map<RunId, std::string> runs_;
  std::vector<rendezvous::RunRecord> journal_;
  std::vector<std::vector<rendezvous::RunRecord>> journals_;  // before each write
  std::string written_;                                       // the last line about it
  std::uint64_t requests_ = 0;

  static JobSpec first_spec() {
    JobSpec spec;
    spec.job = "j";
    spec.program = "train.py";
    return spec;
  }
};

Rendezvous& RendezvousAdapter::machine() {
  if (!machine_) {
    options_.server_instance = "server";
    options_.unix_us_at_origin = kOrigin;
    machine_.emplace(options_, Rng(1));
  }
  return *machine_;
}

// Run ids are random; readers want to know which, not what.
std::string RendezvousAdapter::shown(std::string text) {
  for (const auto& [run, name] : runs_) {
    for (std::size_t at = text.find(run); at != std::string::npos; at = text.find(run, at)) {
      text.replace(at, run.size(), name);
    }
  }
  return text;
}

std::string RendezvousAdapter::name_of(SessionId session) const {
  for (const auto& [name, label] : labels_) {
    if (label.session == session) return name;
  }
  return "session" + std::to_string(session);
}

void RendezvousAdapter::learn(SessionId session, const ServerMessage& message) {
  const auto found = labels_.find(name_of(session));
  if (found == labels_.end()) return;
  Label& label = found->second;
  if (std::holds_alternative<Stale>(message.body)) return;
  if (std::holds_alternative<JoinRefused>(message.body) ||
      std::holds_alternative<Evicted>(message.body)) {
    label.attached = false;
    return;
  }
  label.known = message.envelope;
  label.reattach.run = message.envelope.run;
  label.reattach.incarnation = message.envelope.incarnation;
  label.reattach.epoch = message.envelope.epoch;
  if (const auto* prepare = std::get_if<Prepare>(&message.body)) {
    label.prepare = *prepare;
    label.prepared_generation = message.envelope.generation;
    label.reattach.restarts_used = prepare->assignment.restarts_used;
  } else if (std::holds_alternative<Commit>(message.body) && label.prepare) {
    label.ranks = label.prepare->assignment.members;
    label.reattach.generation = message.envelope.generation;
    label.reattach.workers_running = true;
  }
}

Transcript RendezvousAdapter::step(const rendezvous::Event& event, Instant now, bool show_acks) {
  Transcript out;
  std::vector<std::string> told;  // an event goes to agents first, then to the server's file
  const std::vector<rendezvous::Action> actions = machine().step(event, now);
  const auto writes = [](const auto& a) { return std::holds_alternative<rendezvous::Persist>(a); };
  if (std::any_of(actions.begin(), actions.end(), writes)) journals_.push_back(journal_);
  rendezvous::write_down(actions, journal_);
  for (const rendezvous::Action& action : actions) {
    if (const auto* send = std::get_if<rendezvous::Send>(&action)) {
      const RunId& run = send->message.envelope.run;
      if (!run.empty()) runs_.emplace(run, "run-" + std::to_string(runs_.size() + 1));
      learn(send->session, send->message);
      const auto* notice = std::get_if<JobEventNotice>(&send->message.body);
      const bool alone = notice != nullptr &&  // to one agent, not to the job
                         (notice->age > Duration{0} ||
                          std::holds_alternative<event::JobStarted>(notice->event.body));
      if (notice != nullptr && !alone) {
        told.push_back(name_of(send->session));
      } else if (show_acks || !std::holds_alternative<HeartbeatAck>(send->message.body)) {
        out.push_back(shown(name_of(send->session) + " <- " + words(send->message)));
      }
    } else if (const auto* emit = std::get_if<rendezvous::Emit>(&action)) {
      runs_.emplace(emit->run, "run-" + std::to_string(runs_.size() + 1));
      out.push_back(shown("event " + words(emit->event) +
                          (told.empty() ? "" : " (told " + joined(told) + ")")));
      told.clear();
    } else if (const auto* close = std::get_if<rendezvous::CloseSession>(&action)) {
      out.push_back("close " + name_of(close->session));
    } else if (const auto* persist = std::get_if<rendezvous::Persist>(&action)) {
      const rendezvous::JobRecord& record = persist->record;
      runs_.emplace(record.run, "run-" + std::to_string(runs_.size() + 1));
      // Nearly every step writes something; what is worth a line is a number that rose.
      std::string line = shown(
          "persist " + record.run + " epoch=" + std::to_string(record.epoch) + " g" +
          std::to_string(record.generation) + " restarts=" + std::to_string(record.restarts_used) +
          (record.outcome ? std::string(" ") + to_word(record.outcome->kind) : ""));
      if (line != written_) out.push_back(line);
      written_ = std::move(line);
    } else if (const auto* forget = std::get_if<rendezvous::Forget>(&action)) {
      out.push_back(shown("forget " + forget->run));
    } else if (const auto* open = std::get_if<rendezvous::OpenStore>(&action)) {
      out.push_back("open store g" + std::to_string(open->generation));
    } else if (const auto* shut = std::get_if<rendezvous::CloseStore>(&action)) {
      out.push_back("close store g" + std::to_string(shut->generation));
    } else if (const auto* reply = std::get_if<rendezvous::ReplyOperator>(&action)) {
      out.push_back("reply " + std::string(answer_word(reply->answer.kind)) + ": " +
                    reply->answer.text);
    } else if (const auto* over = std::get_if<rendezvous::JobOver>(&action)) {
      out.push_back(shown("over " + over->run + " " + words(over->outcome)));
    }
  }
  return out;
}

Label* RendezvousAdapter::need(const std::string& label, Command& command) {
  const auto found = labels_.find(label);
  if (found == labels_.end()) {
    command.complain("no such node: " + label);
    return nullptr;
  }
  return &found->second;
}

Transcript RendezvousAdapter::join(Command& command, Instant now, bool again) {
  const std::string name = command.need_word("label");
  if (again && need(name, command) == nullptr) return {};
  Label& label = labels_[name];
  const NodeName node = command.text_or("node", again ? label.facts.name : name);
  const auto address = addresses_.emplace(node, "10.0.0." + std::to_string(addresses_.size() + 1));
  label.spec = spec_;
  label.facts.name = node;
  label.facts.host = command.text_or("host", node);
  label.facts.boot_id = command.text_or("boot", "boot-" + label.facts.host);
  label.facts.advertise_addr = command.text_or("advertise", "");
  label.facts.dialed_addr = command.text_or("dial", "10.0.0.100");
  label.facts.slots = static_cast<std::uint32_t>(command.number_or("slots", 1));
  label.facts.hosts_server = command.flag_or("hosts", false);
  label.facts.agent_pid = static_cast<std::int64_t>(1000 + labels_.size());
  if (const auto rank = command.number("rank")) {
    label.facts.node_rank = static_cast<std::uint32_t>(*rank);
  }
  if (const auto index = command.number("index")) {
    label.facts.scheduler_index = static_cast<std::uint32_t>(*index);
  }
  label.facts.scheduler_attempt = command.text_or("attempt", "");
  if (const auto restart = command.number("restart")) {
    label.facts.scheduler_job = command.text_or("of", "job-7");
    label.facts.scheduler_restart = static_cast<std::uint32_t>(*restart);
  }
  label.peer = command.text_or("addr", address.first->second);
  label.session = ++last_session_;
  label.attached = true;
  label.beat_at = now + kBeat;
  Join join{label.spec, label.facts, std::nullopt};
  if (again) {
    Reattach& known = label.reattach;
    known.run = command.text_or("run", known.run);
    known.incarnation = static_cast<Incarnation>(
        command.number_or("incarnation", static_cast<std::int64_t>(known.incarnation)));
    known.generation = command.number_or("generation", known.generation);
    known.workers_running = command.flag_or("running", known.workers_running);
    known.leaving = command.flag_or("leaving", false);
    known.restarts_used =
        static_cast<std::uint32_t>(command.number_or("restarts", known.restarts_used));
    known.epoch = static_cast<ServerEpoch>(
        command.number_or("epoch", static_cast<std::int64_t>(known.epoch)));
    known.ranks_done.clear();
    for (const std::int64_t rank : command.numbers("done")) {
      known.ranks_done.push_back(static_cast<std::uint32_t>(rank));
    }
    join.reattach = known;
  }
  Envelope envelope;
  envelope.job = spec_.job;
  envelope.node = node;
  if (command.error()) return {};
  return step(rendezvous::AgentSaid{label.session, label.peer, {envelope, join}}, now);
}

Transcript RendezvousAdapter::say(const std::string& name, AgentBody body, Instant now,
                                  std::optional<Generation> generation) {
  const Label& label = labels_.at(name);
  Envelope envelope = label.known;
  envelope.node = label.facts.name;
  envelope.job = label.spec.job;
  envelope.generation = generation.value_or(label.reattach.generation);
  const bool is_beat = std::holds_alternative<Heartbeat>(body);
  return step(rendezvous::AgentSaid{label.session, label.peer, {envelope, std::move(body)}}, now,
              is_beat);
}

Transcript RendezvousAdapter::prepared(const std::string& name, Command& command, Instant now) {
  const Label& label = labels_.at(name);
  if (!label.prepare) {
    command.complain(name + " was not asked to prepare");
    return {};
  }
  PrepareAnswer answer;
  answer.attempt = static_cast<Attempt>(command.number_or("attempt", label.prepare->attempt));
  const auto refusal = command.text("no");
  answer.accepted = !refusal.has_value();
  answer.reason = refusal.value_or("");
  const std::int64_t port = label.prepare->assignment.group_rank == 0 ? 20000 : 0;
  answer.master_port = static_cast<std::uint16_t>(command.number_or("port", port));
  return say(name, answer, now, command.number_or("generation", label.prepared_generation));
}

Transcript RendezvousAdapter::started(const std::string& name, Instant now) {
  WorkersStarted started;
  const Label& label = labels_.at(name);
  for (const MemberRanks& member : label.ranks) {
    if (member.node != label.facts.name) continue;
    for (std::uint32_t rank = member.first_rank; rank < member.first_rank + member.count; ++rank) {
      started.workers.push_back({rank, 5000 + rank});
    }
  }
  return say(name, started, now);
}

Transcript RendezvousAdapter::exited(Command& command, Instant now) {
  const std::string name = command.need_word("label");
  Label* label = need(name, command);
  if (label == nullptr) return {};
  WorkerExited exited;
  exited.rank = static_cast<std::uint32_t>(command.number_or("rank", 0));
  for (const MemberRanks& member : label->ranks) {
    if (member.node == label->facts.name) exited.local_rank = exited.rank - member.first_rank;
  }
  exited.pid = 5000 + exited.rank;
  read_exit(command, exited);
  const Generation generation = command.number_or("generation", label->reattach.generation);
  return say(name, exited, now, generation);
}

Transcript RendezvousAdapter::beat(Command& command, Instant now) {
  const std::string name = command.need_word("label");
  Label* label = need(name, command);
  if (label == nullptr) return {};
  Heartbeat heartbeat;
  heartbeat.sequence = ++label->sequence;
  if (const auto number = command.number("step")) {
    RankProgress progress;
    progress.step = static_cast<std::uint64_t>(*number);
    progress.age = command.duration("age").value_or(Duration{0});
    if (const auto checkpoint = command.number("checkpoint")) {
      progress.checkpoint_step = static_cast<std::uint64_t>(*checkpoint);
    }
    heartbeat.progress.push_back(progress);
  }
  return say(name, heartbeat, now);
}

Transcript RendezvousAdapter::view(Instant now) {
  static constexpr const char* kPhases[] = {"forming",  "preparing", "starting",   "running",
                                            "stopping", "backoff",   "recovering", "finished"};
  Transcript out;
  for (const rendezvous::JobView& job : machine().view(now)) {
    out.push_back(shown("job " + job.spec.job + " " + job.run + " " +
                        kPhases[static_cast<std::size_t>(job.phase)] + " g" +
                        std::to_string(job.generation) + " epoch=" + std::to_string(job.epoch) +
                        " restarts=" + std::to_string(job.restarts_used)));
    for (const rendezvous::MemberView& member : job.members) {
      std::string line = "  " + member.node + (member.role == Role::kSpare ? " spare" : " member") +
                         (member.connected ? "" : " disconnected");
      if (member.ranks) line += " ranks from " + std::to_string(member.ranks->first_rank);
      out.push_back(line.substr(2));
    }
  }
  return out;
}

// Commands that take several labels.
Transcript RendezvousAdapter::for_each(Command& command, Instant now) {
  Transcript out;
  while (const auto name = command.word()) {
    Label* label = need(*name, command);
    if (label == nullptr) return out;
    Transcript part;
    const std::string& what = command.name();
    if (what == "prepared") part = prepared(*name, command, now);
    if (what == "started") part = started(*name, now);
    if (what == "seen") part = say(*name, OutcomeSeen{}, now);
    if (what == "mute") label->muted = true;
    if (what == "unmute") label->muted = false;
    if (what == "stopped") {
      part = say(*name, StopConfirmed{}, now);
      label->reattach.workers_running = false;
    }
    if (what == "drop") {
      label->attached = false;
      part = step(rendezvous::StreamLost{label->session}, now);
    }
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

Transcript RendezvousAdapter::rest(Command& command, Instant now) {
  const std::string& what = command.name();
  if (what == "leave") {
    const std::string name = command.need_word("label");
    if (need(name, command) == nullptr) return {};
    const auto signal = command.text("signal");
    const Duration age = command.duration("age").value_or(Duration{0});
    return say(name, Leave{signal ? signal_number(*signal).value_or(0) : 0, "told to", age}, now);
  }
  if (what == "fired") {
    const std::string name = command.need_word("label");
    if (need(name, command) == nullptr) return {};
    ChaosFired fired;
    fired.fault_index = static_cast<std::uint32_t>(command.number_or("fault", 0));
    if (const auto rank = command.number("rank")) fired.rank = static_cast<std::uint32_t>(*rank);
    return say(name, fired, now);
  }
  if (what == "stop") {
    const JobId id = command.text_or("id", spec_.job);
    return ordered(rendezvous::StopJob{}, id, now, command.text_or("by", "ann"));
  }
  if (what == "scale") {
    return ordered(rendezvous::ScaleJob{static_cast<std::uint32_t>(command.number_or("min", 1)),
                                        static_cast<std::uint32_t>(command.number_or("max", 1))},
                   spec_.job, now);
  }
  if (what == "drain") {
    return ordered(rendezvous::DrainNode{command.need_word("node")}, spec_.job, now);
  }
  if (what == "rerun") return ordered(rendezvous::RestartJob{}, spec_.job, now);
  if (what == "leaving") {
    return step(rendezvous::ServerStopping{command.text_or("reason", "SIGTERM")}, now);
  }
  if (what == "stalled") {
    return step(rendezvous::HostStalled{command.duration("by").value_or(Duration{0})}, now);
  }
  if (what == "tick") return step(rendezvous::Tick{}, now);
  if (what == "view") return view(now);
  command.complain("unknown command: " + what);
  return {};
}

Transcript RendezvousAdapter::run(Command& command, Instant now) {
  const std::string& what = command.name();
  if (what == "server") {
    if (machine_) command.complain("the server runs already");
    options_.only_job = command.text("only");
    options_.holder = command.text_or("holder", "");
    return {};
  }
  if (what == "restart") {
    const bool reads = command.text_or("journal", "no") == "yes";
    machine_.emplace(options_, Rng(2));
    for (auto& [name, label] : labels_)
      label.attached = false;
    std::vector<rendezvous::RunRecord> journal = std::exchange(journal_, {});
    for (std::int64_t lost = command.number_or("lost", 0); lost > 0 && !journals_.empty(); --lost) {
      journal = std::move(journals_.back());
      journals_.pop_back();
    }
    if (!reads) return {};
    journal_ = journal;
    return step(rendezvous::JournalRead{std::move(journal)}, now);
  }
  if (what == "job") return read_job(command, spec_), Transcript{};
  if (what == "fault") return read_fault(command, spec_), Transcript{};
  if (what == "join") return join(command, now, false);
  if (what == "reattach") return join(command, now, true);
  if (what == "exited") return exited(command, now);
  if (what == "beat") return beat(command, now);
  for (const char* several : {"prepared", "started", "stopped", "seen", "drop", "mute", "unmute"}) {
    if (what == several) return for_each(command, now);
  }
  return rest(command, now);
}

std::optional<Instant> RendezvousAdapter::next_deadline() const {
  std::optional<Instant> next = machine_ ? machine_->next_deadline() : std::nullopt;
  for (const auto& [name, label] : labels_) {
    if (label.attached && !label.muted) next = earlier(next, label.beat_at);
  }
  return next;
}

Transcript RendezvousAdapter::tick(Instant now) {
  Transcript out;
  for (auto& [name, label] : labels_) {
    if (!label.attached || label.beat_at > now) continue;
    label.beat_at = now + kBeat;
    if (label.muted) continue;
    Envelope envelope = label.known;
    envelope.node = label.facts.name;
    const Heartbeat heartbeat{++label.sequence, {}};
    const Transcript part =
        step(rendezvous::AgentSaid{label.session, label.peer, {envelope, heartbeat}}, now);
    out.insert(out.end(), part.begin(), part.end());
  }
  const std::optional<Instant> due = machine().next_deadline();
  if (due && *due <= now) {
    const Transcript part = step(rendezvous::Tick{}, now);
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

const bool registered =
    register_adapter("rendezvous", [] { return std::make_unique<RendezvousAdapter>(); });

}  // namespace

}  // namespace muster::scenario
