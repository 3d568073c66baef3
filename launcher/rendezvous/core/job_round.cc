// SPDX-License-Identifier: Apache-2.0
//
// Forming a generation: who takes part, the two phases of publishing, and what those who wait
// are told.
#include <algorithm>

#include "launcher/rendezvous/core/address.h"
#include "launcher/rendezvous/core/job.h"
#include "launcher/rendezvous/core/ranks.h"
#include "proto/base/check.h"

namespace muster::rendezvous {

namespace {

// A loaded host answers late; below this, "two heartbeats" would be about the scheduler.
constexpr Duration kShortestPrepare = 1s;
constexpr std::uint32_t kMostRefusalDoublings = 5;
// A generation that runs is stopped for a node that refused much later, and ever more rarely.
constexpr std::uint32_t kGrowthDoublings = 4;
constexpr std::uint32_t kMostGrowthDoublings = 10;
constexpr Duration kLongestAside = 1h;  // before it is doubled

// Beyond this many members the picture is told at intervals, and names are cut.
constexpr std::size_t kChattyMembers = 32;
constexpr Duration kQuietInterval = 1s;
constexpr std::size_t kNamesTold = 1024;
constexpr Duration kLongestTold = std::chrono::hours(24 * 3660);  // what messages can carry

Duration prepare_timeout(const JobPolicy& policy) {
  return std::max(2 * policy.heartbeat, kShortestPrepare);
}

}  // namespace

void Job::open_round(FormReason reason, bool wait_for_max) {
  reason_ = reason;
  wait_for_max_ = wait_for_max;
  reforming_ = life_.has_value();
  round_opened_at_ = now_;
  join_deadline_ = now_ + spec_.policy.join_timeout;
  last_call_until_.reset();
  next_attempt_ = first_attempt();
}

bool Job::is_free(const NodeName& name, const Member& member) const {
  return member.connected() && !member.leaving && !working_.contains(name) &&
         member.ask_again_at <= now_;
}

bool Job::may_be_chosen(const NodeName& name, const Member& member) const {
  return is_free(name, member) && !confined(name);
}

std::size_t Job::count_candidates() {
  std::size_t count = 0;
  for (const auto& [name, member] : members_) {
    if (may_be_chosen(name, member)) {
      ++count;
    } else if (member.ask_again_at > now_ && !confined(name)) {
      forming_deadline_ = earlier(forming_deadline_, member.ask_again_at);
    }
  }
  return count;
}

// Who takes part: previous members first, by their old place; then by arrival.
std::vector<Member*> Job::candidates() {
  std::vector<Member*> chosen;
  for (auto& [name, member] : members_) {
    if (may_be_chosen(name, member)) chosen.push_back(&member);
  }
  const auto place = [&](const Member* member) {
    const auto at = life_ ? life_->group_ranks.find(member->facts.name)
                          : std::map<NodeName, std::uint32_t>::const_iterator{};
    const bool previous = life_ && at != life_->group_ranks.end();
    return previous ? std::pair<std::uint64_t, Incarnation>(at->second, 0)
                    : std::pair<std::uint64_t, Incarnation>(1ULL << 32U, member->incarnation);
  };
  // Of two servers' nodes with the same number the one whose name comes first.
  std::stable_sort(chosen.begin(), chosen.end(),
                   [&](const Member* a, const Member* b) { return place(a) < place(b); });
  if (chosen.size() > spec_.max_nodes) chosen.resize(spec_.max_nodes);
  return chosen;
}

// A previous member whose stream broke a moment ago: in reconnect_grace it is back or lost, and
// forming without it would only mean forming again.
bool Job::awaits_previous_member() const {
  if (!reforming_) return false;
  return std::any_of(members_.begin(), members_.end(), [&](const auto& entry) {
    return !entry.second.connected() && !entry.second.leaving && !confined(entry.first) &&
           life_->group_ranks.contains(entry.first);
  });
}

bool Job::try_publish() {
  if (everyone_left()) {
    finish_left();
    return true;
  }
  forming_deadline_.reset();
  std::size_t here = count_candidates();
  if (here < spec_.max_nodes && awaits_previous_member()) return false;
  if (here < spec_.min_nodes) here += call_back(spec_.min_nodes - here);
  bool enough = here >= spec_.max_nodes;
  if (!enough && here >= spec_.min_nodes) {
    if (wait_for_max_ && !last_call_until_) last_call_until_ = now_ + spec_.policy.last_call;
    enough = !wait_for_max_ || now_ >= *last_call_until_;
    if (!enough) forming_deadline_ = earlier(forming_deadline_, last_call_until_);
  } else if (!enough) {
    last_call_until_.reset();
    if (now_ >= join_deadline_) {
      time_out_joining();
      return true;
    }
    forming_deadline_ = earlier(forming_deadline_, join_deadline_);
  }
  if (enough && fenced()) {
    forming_deadline_ = earlier(forming_deadline_, fenced_until_);
    return false;
  }
  if (!enough) return false;
  publish(candidates());
  return true;
}

void Job::publish(std::vector<Member*> chosen) {
  std::vector<Candidate> nodes;
  for (const Member* member : chosen) {
    Candidate node{member->facts.name,           member->facts.host,      member->observed_addr,
                   member->facts.slots,          member->facts.node_rank, std::nullopt,
                   member->facts.scheduler_index};
    if (life_) {
      const auto at = life_->group_ranks.find(node.name);
      if (at != life_->group_ranks.end()) node.previous = at->second;
    }
    nodes.push_back(std::move(node));
  }
  Round round;
  round.ranks = assign_ranks(nodes);
  std::vector<const Member*> by_rank;
  for (const MemberRanks& ranks : round.ranks) {
    by_rank.push_back(&members_.at(ranks.node));
    round.chosen.insert(ranks.node);
    round.world_size += ranks.count;
  }
  round.unanswered = round.chosen;
  MasterAddress master = choose_master_address(by_rank);
  if (!master.refusal.empty()) {
    Outcome refused;
    refused.kind = OutcomeKind::kFailed;
    refused.exit_code = 2;
    refused.exit_class = ExitClass::kUsage;
    refused.text = std::move(master.refusal);
    finish(std::move(refused));
    return;
  }
  round.generation = generation_ + 1;
  round.attempt = next_attempt_;
  round.master_addr = std::move(master.addr);
  round.deadline = now_ + prepare_timeout(spec_.policy);
  round_ = std::move(round);
  phase_ = Phase::kPreparing;
  for (const MemberRanks& ranks : round_->ranks) {
    send(members_.at(ranks.node), round_->generation,
         Prepare{round_->attempt, assignment_for(ranks)});
  }
}

Assignment Job::assignment_for(const MemberRanks& member) const {
  Assignment assignment;
  assignment.generation = round_->generation;
  assignment.world_size = round_->world_size;
  assignment.members = round_->ranks;
  assignment.group_rank = member.group_rank;
  assignment.master_addr = round_->master_addr;
  assignment.restarts_used = budget_.used();
  assignment.max_restarts = budget_.max();
  assignment.reason = reason_;
  assignment.faults = faults_.arm(round_->generation, round_->ranks, member);
  return assignment;
}

// The choice is made again, under the same number. What was chosen once needs no last call.
void Job::reopen_round() {
  MUSTER_CHECK(phase_ == Phase::kPreparing);
  round_.reset();
  ++next_attempt_;
  wait_for_max_ = false;
  phase_ = Phase::kForming;
}

// Not asked again for a while, so that others decide first and a node that can never serve is
// not asked for ever at full speed.
void Job::set_aside(Member& member, std::string why) {
  const Duration once = std::min(prepare_timeout(spec_.policy), kLongestAside);
  const std::uint32_t before = member.refusals++;
  member.ask_again_at = now_ + once * (1LL << std::min(before, kMostRefusalDoublings));
  member.grow_again_at =
      now_ + once * (1LL << std::min(before + kGrowthDoublings, kMostGrowthDoublings));
  member.refusal = std::move(why);
  ++picture_version_;
}

bool Job::on(Member& member, const Envelope& envelope, const PrepareAnswer& answer) {
  if (phase_ != Phase::kPreparing || envelope.generation != round_->generation ||
      answer.attempt != round_->attempt) {
    return false;
  }
  const NodeName& name = member.facts.name;
  if (!round_->unanswered.contains(name)) return false;
  const bool holds_port = round_->ranks.front().node == name;
  if (!answer.accepted || (holds_port && answer.master_port == 0)) {
    set_aside(member, answer.accepted ? "holds no master port" : answer.reason);
    reopen_round();
    return true;
  }
  if (member.refusals > 0) ++picture_version_;
  member.refusals = 0;
  member.grow_again_at = Instant{};
  if (holds_port) round_->master_port = answer.master_port;
  round_->unanswered.erase(name);
  return true;
}

bool Job::try_commit() {
  if (!round_->unanswered.empty() || !working_.empty()) return false;
  if (fenced()) {
    reopen_round();
    return true;
  }
  for (const MemberRanks& ranks : round_->ranks) {
    // Back within reconnect_grace or lost: either decides.
    if (!members_.at(ranks.node).connected()) return false;
  }
  Life life;
  life.generation = round_->generation;
  life.ranks = round_->ranks;
  life.world_size = round_->world_size;
  life.master_addr = round_->master_addr;
  life.master_port = round_->master_port;
  life.committed_at = now_;
  generation_ = life.generation;
  committed_attempt_ = round_->attempt;
  for (auto& [name, member] : members_) {
    member.role = Role::kSpare;
    touch(name);
  }
  // Those of the generation before are known no longer, if they are gone.
  if (life_) {
    for (const MemberRanks& ranks : life_->ranks)
      touch(ranks.node);
  }
  life_touched_ = true;
  for (const MemberRanks& ranks : life.ranks) {
    Member& member = members_.at(ranks.node);
    member.role = Role::kMember;
    member.work = generation_;
    member.progress.clear();
    working_.insert(ranks.node);
    life.unstarted.insert(ranks.node);
    life.group_ranks[ranks.node] = ranks.group_rank;
  }
  life_ = std::move(life);
  stop_.reset();
  growth_call_until_.reset();
  round_.reset();
  phase_ = Phase::kStarting;
  act(OpenStore{spec_.job, generation_});
  publish_event(job_event(event::GenerationFormed{
      life_->world_size, life_->ranks, life_->master_addr, life_->master_port, reason_}));
  for (const MemberRanks& ranks : life_->ranks) {
    send(members_.at(ranks.node), Commit{committed_attempt_, life_->master_port});
  }
  return true;
}

bool Job::end_recovery() {
  recovery_due_.reset();  // past the window only stops are awaited, and they are events
  if (now_ < recovering_until_) recovery_due_ = recovering_until_;
  if (!working_.empty()) return false;
  const auto here = std::count_if(members_.begin(), members_.end(), [this](const auto& entry) {
    return entry.second.connected() && !entry.second.leaving && !confined(entry.first);
  });
  const bool complete = here >= static_cast<std::ptrdiff_t>(spec_.max_nodes);
  if (!complete && now_ < recovering_until_ && !everyone_left()) return false;
  open_round(generation_ == kNoGeneration ? FormReason::kStart : FormReason::kStateLost, false);
  stop_.reset();
  phase_ = Phase::kForming;
  return true;
}

// ---------------------------------------------------------------- what those who wait are told

std::optional<Waiting> Job::picture() const {
  Waiting waiting;
  if (finished() || (runs() && working_.size() == members_.size())) return std::nullopt;
  std::uint32_t here = 0;
  for (const auto& [name, member] : members_) {
    if (member.leaving || confined(name)) continue;
    ++here;
    if (waiting.joined.size() < kNamesTold) waiting.joined.push_back(name);
    if (waiting.obstacle.empty() && member.refusals > 0) {
      waiting.obstacle = "node " + name + ": " + member.refusal;
    }
  }
  waiting.min_nodes = spec_.min_nodes;
  waiting.max_nodes = spec_.max_nodes;
  waiting.missing = here < spec_.min_nodes ? spec_.min_nodes - here : 0;
  switch (phase_) {
    case Phase::kForming:
      waiting.why = last_call_until_      ? Waiting::Why::kLastCall
                    : waiting.missing > 0 ? Waiting::Why::kBelowMin
                    : fenced()            ? Waiting::Why::kFenced
                               : Waiting::Why::kPreparing;  // somebody must be asked again
      break;
    case Phase::kPreparing: waiting.why = Waiting::Why::kPreparing; break;
    case Phase::kStopping: waiting.why = Waiting::Why::kStopping; break;
    case Phase::kBackoff: waiting.why = Waiting::Why::kBackoff; break;
    case Phase::kRecovering: waiting.why = Waiting::Why::kRecovering; break;
    case Phase::kStarting:
    case Phase::kRunning:
      waiting.why =
          life_->ranks.size() < spec_.max_nodes ? Waiting::Why::kLate : Waiting::Why::kSpare;
      break;
    case Phase::kFinished: break;
  }
  return waiting;
}

Duration Job::remaining() const {
  std::optional<Instant> until;
  if (phase_ == Phase::kForming) until = last_call_until_ ? *last_call_until_ : join_deadline_;
  if (phase_ == Phase::kRunning) until = growth_due_;
  if (phase_ == Phase::kForming && fenced() && !last_call_until_) until = fenced_until_;
  if (phase_ == Phase::kBackoff) until = backoff_until_;
  if (phase_ == Phase::kRecovering) until = recovering_until_;
  return until && *until > now_ ? std::min(*until - now_, kLongestTold) : Duration{0};
}

// Those who prepare know it from Prepare, those who work wait for nothing.
void Job::say_waiting_to(const Member& member, const Waiting& waiting) {
  const bool prepares = round_ && round_->chosen.contains(member.facts.name);
  const bool works = runs() && working_.contains(member.facts.name);
  if (prepares || works || member.leaving) return;
  Waiting told = waiting;
  told.remaining = remaining();
  if (const std::optional<Instant> until = quarantine_.until(member.facts.name)) {
    told.why = Waiting::Why::kQuarantined;
    // Over, and not yet looked at: what happened is handled before what is due.
    told.remaining = std::clamp(*until - now_, Duration{0}, kLongestTold);
  }
  send(member, std::move(told));
}

void Job::say_waiting() {
  const PictureKey key{phase_, last_call_until_.has_value(), picture_version_};
  if (said_key_ == key && !say_waiting_at_) return;
  std::optional<Waiting> waiting;
  if (!server_left_) waiting = picture();
  const bool chatty = members_.size() <= kChattyMembers;
  const Duration quiet = kQuietInterval * static_cast<std::int64_t>(1 + members_.size() / 1024);
  if (waiting && waiting != said_waiting_ && !chatty && now_ < said_waiting_at_ + quiet) {
    say_waiting_at_ = said_waiting_at_ + quiet;
    return;
  }
  said_key_ = key;
  say_waiting_at_.reset();
  if (waiting == said_waiting_) return;
  said_waiting_ = waiting;
  said_waiting_at_ = now_;
  if (!waiting) return;
  for (const auto& [name, member] : members_)
    say_waiting_to(member, *waiting);
}

}  // namespace muster::rendezvous
