// SPDX-License-Identifier: Apache-2.0
//
// All jobs of one server: which run an event belongs to, and what concerns them together (a host
// that slept, many streams breaking at once, the server's own end).
#include "launcher/rendezvous/core/rendezvous.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "launcher/rendezvous/core/admission.h"
#include "launcher/rendezvous/core/job.h"
#include "launcher/rendezvous/core/run_id.h"
#include "proto/base/check.h"

namespace muster::rendezvous {

namespace {

// A deadline served later than this means that the strand stood still, not the agents.
constexpr Duration kStall = 500ms;

// This many streams, and this share of all, breaking within this time is our side's failure.
constexpr Duration kMassWindow = 1s;
constexpr std::size_t kMassStreams = 2;
constexpr std::size_t kMassShare = 10;  // one in ten

// Finished runs of one job id that still answer those who ask late.
constexpr std::size_t kRunsKept = 8;

bool is_on(const Job& job) {
  return !job.finished() && !job.given_up();
}

}  // namespace

struct Rendezvous::State {
  // The newest last; only that one can be unfinished.
  using Runs = std::deque<std::unique_ptr<Job>>;

  State(Options from, Rng chance)
      : options(std::move(from)), rng(chance), shared{options, rng, sessions, Instant{}} {}

  void on(const AgentSaid& said);
  void on(const StreamLost& lost);
  void on(const OperatorAsked& asked);
  void on(const ServerStopping& stopping);
  void on(const HostStalled& stall);
  void on(const JournalRead& journal);
  void on(const Tick&);
  void join(const AgentSaid& said, const Join& join);
  bool reads_outcome(const AgentSaid& said, const Join& join, Runs& runs);
  void reattach(const AgentSaid& said, const Join& join, Runs* runs);
  void refuse(const AgentSaid& said, const Join& join, JoinRefused why);
  void send(const AgentSaid& said, ServerBody body);
  void send_away(const AgentSaid& said, const std::string& why);
  bool is_taken(const RunId& run) const;
  RunId new_run_id();
  Job* start_run(const AgentSaid& said, const Join& join, const Reattach* known);
  bool make_room();
  JobId job_meant() const;
  void note_broken_stream();
  void take(Job& job) { job.take(out); }
  void forget(const Job& job);

  Options options;
  Rng rng;
  Sessions sessions;
  Shared shared;
  std::map<JobId, Runs> jobs;
  bool started = false;
  std::optional<std::string> stopping;  // the reason given
  Instant now;
  std::optional<Instant> promised;  // next_deadline() as the host knows it
  std::deque<Instant> broken;       // streams of unfinished jobs, within kMassWindow
  // Runs forgotten so early that their agents could be taken for those of a lost server; until
  // then.
  std::map<RunId, Instant> forgotten;
  std::vector<Action> out;
};

Rendezvous::Rendezvous(Options options, Rng rng)
    : state_(std::make_unique<State>(std::move(options), rng)) {}
Rendezvous::~Rendezvous() = default;
Rendezvous::Rendezvous(Rendezvous&&) noexcept = default;
Rendezvous& Rendezvous::operator=(Rendezvous&&) noexcept = default;

std::vector<Action> Rendezvous::step(const Event& event, Instant now) {
  State& state = *state_;
  MUSTER_CHECK(!state.started || now >= state.now);
  if (!state.started) state.shared.started_at = now;
  state.started = true;
  state.now = now;
  if (state.promised && now - *state.promised > kStall) {
    const Duration stall = now - *state.promised;
    for (auto& [id, runs] : state.jobs) {
      runs.back()->shift_liveness(stall, now);
      runs.back()->note_stall(stall, now);
    }
  }
  std::visit([&](const auto& body) { state.on(body); }, event);
  state.promised = next_deadline();
  return std::exchange(state.out, {});
}

std::optional<Instant> Rendezvous::next_deadline() const {
  std::optional<Instant> next;
  for (const auto& [id, runs] : state_->jobs) {
    for (const auto& job : runs)
      next = earlier(next, job->next_deadline());
  }
  return next;
}

std::vector<RunRecord> Rendezvous::records() const {
  std::vector<RunRecord> records;
  for (const auto& [id, runs] : state_->jobs) {
    for (const auto& job : runs)
      records.push_back(job->whole_record());
  }
  return records;
}

std::size_t Rendezvous::connected() const {
  std::size_t connected = 0;
  for (const auto& [id, runs] : state_->jobs)
    connected += runs.back()->connected();
  return connected;
}

std::optional<Duration> Rendezvous::shortest_node_timeout() const {
  std::optional<Duration> shortest;
  for (const auto& [id, runs] : state_->jobs) {
    const Job& job = *runs.back();
    if (job.finished()) continue;
    shortest = std::min(shortest.value_or(Duration::max()), job.spec().policy.node_timeout);
  }
  return shortest;
}

std::vector<JobView> Rendezvous::view(Instant now) const {
  std::vector<JobView> views;
  for (const auto& [id, runs] : state_->jobs)
    views.push_back(runs.back()->view(now));
  return views;
}

void Rendezvous::State::on(const AgentSaid& said) {
  if (const auto* join = std::get_if<Join>(&said.message.body)) return this->join(said, *join);
  const Attachment* from = sessions.find(said.session);
  if (from == nullptr) {
    Envelope known;
    known.job = said.message.envelope.job;
    send(said, Stale{message_name(said.message.body), known});
    return;
  }
  const Attachment attached = *from;
  attached.job->said(attached, said.session, said.message, now);
  take(*attached.job);
}

void Rendezvous::State::send(const AgentSaid& said, ServerBody body) {
  Envelope envelope;
  envelope.job = said.message.envelope.job;
  envelope.node = said.message.envelope.node;
  envelope.incarnation = said.message.envelope.incarnation;
  out.emplace_back(Send{said.session, {std::move(envelope), std::move(body)}});
}

void Rendezvous::State::refuse(const AgentSaid& said, const Join& join, JoinRefused why) {
  static_cast<void>(join);
  send(said, std::move(why));
  out.emplace_back(CloseSession{said.session});
}

void Rendezvous::State::join(const AgentSaid& said, const Join& join) {
  if (sessions.find(said.session) != nullptr) {
    send(said, refusal(JoinRefused::Why::kInvalid, "this stream has joined already"));
    return;
  }
  if (std::optional<JoinRefused> why = refused_for_content(said.message.envelope, join)) {
    return refuse(said, join, std::move(*why));
  }
  if (std::optional<JoinRefused> why = refused_by_server(options, join)) {
    return refuse(said, join, std::move(*why));
  }
  const auto found = jobs.find(join.spec.job);
  Runs* runs = found == jobs.end() ? nullptr : &found->second;
  if (join.reattach && !join.reattach->run.empty()) return reattach(said, join, runs);
  if (runs != nullptr && reads_outcome(said, join, *runs)) return;
  Job* job =
      runs != nullptr && is_on(*runs->back()) ? runs->back().get() : start_run(said, join, nullptr);
  if (job == nullptr) return;
  job->join(said.session, said.peer_addr, join, now);
  take(*job);
}

// The newest run that it was part of and whose end it has not read.
bool Rendezvous::State::reads_outcome(const AgentSaid& said, const Join& join, Runs& runs) {
  if (is_on(*runs.back())) return false;
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
    if (!(*run)->tell_outcome(said.session, join, now)) continue;
    take(**run);
    return true;
  }
  return false;
}

void Rendezvous::State::reattach(const AgentSaid& said, const Join& join, Runs* runs) {
  const Reattach& known = *join.reattach;
  Job* job = nullptr;
  if (runs != nullptr) {
    for (const auto& run : *runs) {
      if (run->is_run(known.run)) job = run.get();
    }
  }
  const std::string run = "run " + known.run + " of job \"" + join.spec.job + "\"";
  const std::string unknown = "this server does not know " + run;
  if (job == nullptr && is_taken(known.run)) return send_away(said, unknown);
  if (job == nullptr && known.generation != kNoGeneration && forgotten.contains(known.run)) {
    return send_away(said, run + " has ended, and how is not kept any longer");
  }
  // A run that is on decides itself whether it gives way to what the agent knows.
  if (job == nullptr && runs != nullptr && is_on(*runs->back())) job = runs->back().get();
  if (job == nullptr) {
    // All that it wants is to say that it leaves.
    if (known.leaving && !known.workers_running) return send_away(said, unknown);
    const bool outlived = now <= shared.started_at + join.spec.policy.server_grace;
    if (!known.workers_running && known.generation == kNoGeneration) {
      job = start_run(said, join, nullptr);  // it only ever waited: nothing is lost
      if (job == nullptr) return;
      job->join(said.session, said.peer_addr, join, now);
      take(*job);
      return;
    }
    if (runs != nullptr || !outlived) return send_away(said, unknown);
    job = start_run(said, join, &known);
    if (job == nullptr) return;
  }
  job->reattach(said.session, said.peer_addr, join, now);
  take(*job);
}

// One of a run that is not its job's here.
void Rendezvous::State::send_away(const AgentSaid& said, const std::string& why) {
  send(said, Evicted{why});
  out.emplace_back(CloseSession{said.session});
}

void Rendezvous::State::forget(const Job& job) {
  out.emplace_back(Forget{job.spec().job, job.run()});
  std::erase_if(forgotten, [this](const auto& entry) { return entry.second < now; });
  const Instant outlived = shared.started_at + job.spec().policy.server_grace;
  if (now <= outlived) forgotten[job.run()] = outlived;
}

// A run belongs to one job, whatever an agent says.
bool Rendezvous::State::is_taken(const RunId& run) const {
  for (const auto& [id, runs] : jobs) {
    for (const auto& job : runs) {
      if (job->is_run(run)) return true;
    }
  }
  return false;
}

// The second and 16 random bits: many jobs that start together may draw the same.
RunId Rendezvous::State::new_run_id() {
  const std::int64_t unix_us =
      options.unix_us_at_origin +
      std::chrono::duration_cast<std::chrono::microseconds>(now.since_origin).count();
  RunId run;
  do {
    run = mint_run_id(std::max<std::int64_t>(unix_us, 0), rng);
  } while (is_taken(run));
  return run;
}

// nullptr: refused.
Job* Rendezvous::State::start_run(const AgentSaid& said, const Join& join, const Reattach* known) {
  if (stopping) {
    JoinRefused why = refusal(JoinRefused::Why::kNotAllowed, "the server leaves: " + *stopping);
    why.exit_code = 76;
    refuse(said, join, std::move(why));
    return nullptr;
  }
  if (!jobs.contains(join.spec.job) && jobs.size() >= options.limits.jobs && !make_room()) {
    refuse(said, join,
           refusal(JoinRefused::Why::kFull,
                   "this server has " + std::to_string(jobs.size()) + " jobs and takes no more"));
    return nullptr;
  }
  Runs& runs = jobs[join.spec.job];
  const std::optional<Instant> fence = runs.empty() ? std::nullopt : runs.back()->fence();
  if (runs.size() >= kRunsKept) {
    runs.front()->give_up_waiting(now);
    take(*runs.front());
    forget(*runs.front());
    runs.pop_front();
  }
  runs.push_back(std::make_unique<Job>(shared, join.spec,
                                       known != nullptr ? known->run : new_run_id(), known, now));
  runs.back()->wait_for_fence(fence);
  return runs.back().get();
}

// Forgets the job that has been over for longest, and has no workers that may live unseen.
bool Rendezvous::State::make_room() {
  auto oldest = jobs.end();
  for (auto at = jobs.begin(); at != jobs.end(); ++at) {
    if (!at->second.back()->over() || at->second.back()->fence() > now) continue;
    const bool older = oldest == jobs.end() ||
                       at->second.back()->finished_at() < oldest->second.back()->finished_at();
    if (older) oldest = at;
  }
  if (oldest == jobs.end()) return false;
  for (const auto& run : oldest->second) {
    run->give_up_waiting(now);
    take(*run);
    forget(*run);
  }
  jobs.erase(oldest);
  return true;
}

void Rendezvous::State::on(const StreamLost& lost) {
  const Attachment* from = sessions.find(lost.session);
  if (from == nullptr) return;  // never joined, refused, or evicted
  const Attachment attached = *from;
  const bool counts = attached.job->counts_as_broken(attached.node);
  attached.job->stream_lost(attached, lost.session, now);
  if (counts) note_broken_stream();
  take(*attached.job);
}

// When much breaks at once the network or this host failed, not the nodes.
void Rendezvous::State::note_broken_stream() {
  while (!broken.empty() && now - broken.front() > kMassWindow)
    broken.pop_front();
  broken.push_back(now);
  const std::size_t before = sessions.size() + broken.size();
  if (broken.size() < kMassStreams || broken.size() * kMassShare <= before) return;
  for (auto& [id, runs] : jobs) {
    runs.back()->hold_losses(now + runs.back()->spec().policy.recovery_window);
  }
}

// By one who names none: the only one that is not over, else the only one. Empty: it is not clear.
JobId Rendezvous::State::job_meant() const {
  JobId only;
  for (const auto& [id, runs] : jobs) {
    if (runs.back()->finished()) continue;
    if (!only.empty()) return "";
    only = id;
  }
  if (only.empty() && jobs.size() == 1) only = jobs.begin()->first;
  return only;
}

void Rendezvous::State::on(const OperatorAsked& asked) {
  const auto answer = [&](OrderAnswer with) {
    out.emplace_back(ReplyOperator{asked.request, std::move(with)});
  };
  const JobId id = asked.job.empty() ? job_meant() : asked.job;
  const auto found = jobs.find(id);
  if (found == jobs.end()) {
    return answer({OrderAnswer::Kind::kUnknown,
                   id.empty() ? "which job? this server has " + std::to_string(jobs.size())
                              : "this server has no job \"" + id + "\""});
  }
  Job& job = *found->second.back();
  OrderAnswer result = job.operate(asked.order, asked.by, now);
  take(job);
  answer(std::move(result));
}

void Rendezvous::State::on(const ServerStopping& event) {
  if (stopping) return;
  stopping = event.reason;
  for (auto& [id, runs] : jobs) {
    for (const auto& run : runs) {
      run->server_leaves(event.reason, now);
      take(*run);
    }
  }
}

void Rendezvous::State::on(const HostStalled& stall) {
  for (auto& [id, runs] : jobs)
    runs.back()->note_stall(stall.by, now);
}

void Rendezvous::State::on(const JournalRead& journal) {
  MUSTER_CHECK(jobs.empty() && sessions.size() == 0);
  for (const RunRecord& run : journal.runs) {
    Runs& runs = jobs[run.job.spec.job];
    runs.push_back(std::make_unique<Job>(shared, run, now));
    take(*runs.back());
  }
}

void Rendezvous::State::on(const Tick&) {
  for (auto at = jobs.begin(); at != jobs.end();) {
    Runs& runs = at->second;
    for (auto run = runs.begin(); run != runs.end();) {
      (*run)->tick(now);
      take(**run);
      if (!(*run)->forgettable(now)) {
        ++run;
        continue;
      }
      forget(**run);
      run = runs.erase(run);
    }
    at = runs.empty() ? jobs.erase(at) : std::next(at);
  }
}

}  // namespace muster::rendezvous
