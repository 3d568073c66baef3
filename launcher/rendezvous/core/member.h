// SPDX-License-Identifier: Apache-2.0
//
// One node of a job as the server knows it, and which stream belongs to whom.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/base/ids.h"
#include "proto/base/job.h"
#include "proto/base/messages.h"
#include "proto/base/time.h"

namespace muster::rendezvous {

class Job;

// How long the Leave of an agent that has the signal may take to come. Long against the way of a
// message, short against a restart.
inline constexpr Duration kLeaveEvidence = 200ms;

struct Member {
  NodeFacts facts;
  std::string observed_addr;  // empty for an in-process session
  Incarnation incarnation = 0;
  Role role = Role::kMember;
  std::vector<std::string> past;  // attempts of the scheduler at its place before it, oldest first

  // Liveness. Without a session the stream broke at `stream_lost_at`.
  std::optional<SessionId> session;
  Instant heard_at;
  Instant stream_lost_at;
  Instant held_until;  // not lost before, while it has no stream
  // Since when it is, or was last, without a stream (of another server: ever), and its return: with
  // it comes, kLeaveEvidence later, what it had to say of that time.
  Instant away_since;
  std::optional<Instant> back_at;
  bool returned = false;  // from the server before this one, whose state is lost
  std::vector<RankProgress> progress;
  bool suspended = false;  // as its last heartbeat said

  // It said Leave; it counts for nothing any more and stays only until its stream ends.
  bool leaving = false;
  bool outcome_seen = false;
  bool told_recovered = false;   // that this server goes on from a journal
  bool told_state_lost = false;  // that this server adopted the run

  // Prepare that was refused or not answered: not asked again before this.
  std::uint32_t refusals = 0;
  Instant ask_again_at;
  Instant grow_again_at;  // nor is a generation that runs stopped for it
  std::string refusal;

  // Generation whose workers may live there; they do until it leaves Job::working_.
  Generation work = kNoGeneration;

  bool connected() const { return session.has_value(); }
};

struct Attachment {
  Job* job = nullptr;
  NodeName node;
  Incarnation incarnation = 0;
};

// All streams that have joined. A stream belongs to one member; a member has one stream at most.
class Sessions {
 public:
  void attach(SessionId session, Attachment attachment) {
    attached_[session] = std::move(attachment);
  }
  void detach(SessionId session) { attached_.erase(session); }
  void detach_all(const Job* job) {
    std::erase_if(attached_, [&](const auto& entry) { return entry.second.job == job; });
  }
  const Attachment* find(SessionId session) const {
    const auto found = attached_.find(session);
    return found == attached_.end() ? nullptr : &found->second;
  }
  std::size_t size() const { return attached_.size(); }

 private:
  std::map<SessionId, Attachment> attached_;
};

}  // namespace muster::rendezvous
