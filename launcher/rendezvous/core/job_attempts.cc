// SPDX-License-Identifier: Apache-2.0
//
// A scheduler runs one attempt at a time at the place of a node: a pod, or a job that it has
// requeued so often. Which came after which decides who holds the place, and whether an agent that
// is started again belongs to the run that is over.
#include <algorithm>
#include <iterator>

#include "launcher/rendezvous/core/admission.h"
#include "launcher/rendezvous/core/job.h"

namespace muster::rendezvous {
namespace {

bool contains(const std::vector<std::string>& attempts, const std::string& attempt) {
  return std::find(attempts.begin(), attempts.end(), attempt) != attempts.end();
}

// The older of two tries of the same thing.
bool counted_before(const std::string& older_job, std::optional<std::uint32_t> older,
                    const std::string& newer_job, std::optional<std::uint32_t> newer) {
  return older && newer && older_job == newer_job && *older < *newer;
}

bool same_place(const NodeFacts& node, const NodeName& name,
                std::optional<std::uint32_t> node_rank) {
  return node.name == name || (node.node_rank && node.node_rank == node_rank);
}

void add(std::vector<std::string>& attempts, const std::string& attempt) {
  if (attempt.empty()) return;
  std::erase(attempts, attempt);
  attempts.push_back(attempt);
  if (attempts.size() > kAttemptsKept) attempts.erase(attempts.begin());
}

JoinRefused replaced_by(const NodeFacts& node, const std::string& by) {
  return refusal(JoinRefused::Why::kDuplicateName,
                 "the scheduler has replaced this agent of node \"" + node.name + "\" (" +
                     node.scheduler_attempt + ") by " + by);
}

}  // namespace

bool is_replaced_by(const NodeFacts& holder, const NodeFacts& newer) {
  const bool known = !holder.scheduler_attempt.empty() && !newer.scheduler_attempt.empty();
  if (!known || !newer.scheduler_index || newer.scheduler_index != holder.scheduler_index) {
    return false;
  }
  if (holder.scheduler_restart || newer.scheduler_restart) {
    return counted_before(holder.scheduler_job, holder.scheduler_restart, newer.scheduler_job,
                          newer.scheduler_restart);
  }
  return newer.scheduler_attempt != holder.scheduler_attempt;
}

// Another attempt has had the place since.
std::optional<JoinRefused> Job::refused_as_over(const NodeFacts& node) const {
  if (node.scheduler_attempt.empty()) return std::nullopt;
  for (const auto& [name, member] : members_) {
    const NodeFacts& holder = member.facts;
    if (!same_place(node, name, holder.node_rank)) continue;
    const bool counted = counted_before(node.scheduler_job, node.scheduler_restart,
                                        holder.scheduler_job, holder.scheduler_restart);
    if (counted || contains(member.past, node.scheduler_attempt)) {
      const std::string by =
          holder.scheduler_attempt.empty() ? "the agent" : holder.scheduler_attempt;
      return replaced_by(
          node, by + " on host " + holder.host + ", pid " + std::to_string(holder.agent_pid));
    }
  }
  for (const auto& [name, gone] : gone_) {
    if (!same_place(node, name, gone.node_rank) || gone.attempts.empty()) continue;
    const std::string& last = gone.attempts.back();
    const bool counted = counted_before(node.scheduler_job, node.scheduler_restart,
                                        gone.scheduler_job, gone.scheduler_restart);
    const bool earlier =
        last != node.scheduler_attempt && contains(gone.attempts, node.scheduler_attempt);
    if (counted || earlier) return replaced_by(node, last + ", which is gone");
  }
  return std::nullopt;
}

// What was tried before at the place that `newer` takes.
std::vector<std::string> Job::past_of(const NodeFacts& newer) const {
  std::vector<std::string> past;
  for (const auto& [name, gone] : gone_) {
    if (!same_place(newer, name, gone.node_rank)) continue;
    for (const std::string& attempt : gone.attempts)
      add(past, attempt);
  }
  std::erase(past, newer.scheduler_attempt);
  return past;
}

// It is a member now, with its past.
void Job::take_over(const NodeFacts& newer) {
  for (auto gone = gone_.begin(); gone != gone_.end();) {
    const bool its = same_place(newer, gone->first, gone->second.node_rank);
    if (its) touch(gone->first);
    gone = its ? gone_.erase(gone) : std::next(gone);
  }
}

// Its scheduler may start it again where it was, perhaps after the end.
void Job::note_gone(const Member& member) {
  const NodeFacts& node = member.facts;
  if (node.scheduler_attempt.empty() && member.past.empty()) return;
  AttemptsRecord gone{node.node_rank, node.scheduler_job, node.scheduler_restart, member.past};
  add(gone.attempts, node.scheduler_attempt);
  gone_[node.name] = std::move(gone);
  if (gone_.size() <= shared_.options.limits.members) return;
  touch(gone_.begin()->first);
  gone_.erase(gone_.begin());
}

bool Job::tell_outcome(SessionId session, const Join& join, Instant now) {
  const std::string& attempt = join.node.scheduler_attempt;
  const bool same_program = join.spec.program_hash == spec_.program_hash;
  if (!finished() || attempt.empty() || !same_program) return false;
  const bool of_member = std::any_of(members_.begin(), members_.end(), [&](const auto& entry) {
    const Member& member = entry.second;
    return member.facts.scheduler_attempt == attempt || contains(member.past, attempt);
  });
  const bool of_gone = std::any_of(gone_.begin(), gone_.end(), [&](const auto& entry) {
    return contains(entry.second.attempts, attempt);
  });
  if (!of_member && !of_gone) return false;
  begin(now);
  Member* const member = find(join.node.name);
  if (member != nullptr && member->facts.scheduler_attempt == attempt) {
    member->outcome_seen = true;
    unread_.erase(join.node.name);
  }
  send_to(session, join.node.name, 0, generation_, OutcomeNotice{*outcome_});
  act(CloseSession{session});
  end();
  return true;
}

}  // namespace muster::rendezvous
