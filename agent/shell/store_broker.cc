// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/store_broker.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace muster::agent {
namespace {

absl::Status stale() {
  return absl::AbortedError("stale: this generation is over");
}

absl::StatusOr<StoreReply> judge(const StoreReply& reply, bool is_repeated_delete) {
  switch (reply.status) {
    case StoreReply::Status::kOk: return reply;
    case StoreReply::Status::kNotFound:
      if (is_repeated_delete) return reply;  // the first try may have done it
      return absl::NotFoundError("no such key");
    case StoreReply::Status::kStale:
      return reply.text.empty() ? stale() : absl::AbortedError("stale: " + reply.text);
    case StoreReply::Status::kRefused: return absl::ResourceExhaustedError(reply.text);
  }
  return absl::InternalError("unknown status");
}

}  // namespace

StoreBroker::~StoreBroker() {
  answer_all(absl::UnavailableError("the agent is ending"));
}

StoreBroker::Ticket StoreBroker::ask(StoreRequest request, Answer answer) {
  if (generation_ == kNoGeneration || request.generation != generation_) {
    answer(stale());
    return 0;
  }
  if (open_.size() >= kMaxOpen) {
    answer(absl::ResourceExhaustedError("too many open store requests on this node"));
    return 0;
  }
  const Ticket ticket = ++last_ticket_;
  request.id = ticket;
  const Instant deadline = now_() + request.wait;
  Request& entry = open_[ticket];
  entry.request = std::move(request);
  entry.answer = std::move(answer);
  entry.deadline = deadline;
  if (link_ != nullptr) send(entry);
  return ticket;
}

void StoreBroker::withdraw(Ticket ticket) {
  const auto found = open_.find(ticket);
  if (found == open_.end()) return;
  const StoreRequest request = std::move(found->second.request);
  const bool waits = found->second.sent && request.op == StoreRequest::Op::kGet;
  open_.erase(found);
  if (!waits || link_ == nullptr) return;
  StoreRequest cancel;
  cancel.id = ticket;
  cancel.generation = request.generation;
  cancel.op = StoreRequest::Op::kCancel;
  cancel.key = request.key;
  link_->store(cancel);
}

// A repeated get waits for what is left of its time.
void StoreBroker::send(Request& entry) {
  if (entry.request.op == StoreRequest::Op::kGet) {
    entry.request.wait = std::max(Duration(0), entry.deadline - now_());
  }
  entry.repeated = entry.sent;
  entry.sent = true;
  link_->store(entry.request);
}

void StoreBroker::link_up(ServerLink* link) {
  link_ = link;
  for (auto& [ticket, entry] : open_)
    send(entry);
}

void StoreBroker::link_down() {
  link_ = nullptr;
  std::vector<Ticket> lost;
  for (const auto& [ticket, entry] : open_) {
    if (entry.sent && entry.request.op == StoreRequest::Op::kAdd) lost.push_back(ticket);
  }
  for (const Ticket ticket : lost) {
    answer(ticket, absl::UnavailableError("the server was lost; the add may have been counted"));
  }
}

void StoreBroker::store_said(const StoreReply& reply) {
  const auto found = open_.find(reply.id);
  if (found == open_.end()) return;  // withdrawn
  const bool is_repeated_delete =
      found->second.repeated && found->second.request.op == StoreRequest::Op::kDelete;
  answer(reply.id, judge(reply, is_repeated_delete));
}

void StoreBroker::generation_started(Generation generation) {
  if (generation == generation_) return;
  generation_ended();
  generation_ = generation;
}

void StoreBroker::generation_ended() {
  generation_ = kNoGeneration;
  answer_all(stale());
}

// The entry is gone before the answer is given: an answer may ask again.
void StoreBroker::answer(Ticket ticket, absl::StatusOr<StoreReply> reply) {
  const auto found = open_.find(ticket);
  if (found == open_.end()) return;
  const Answer give = std::move(found->second.answer);
  open_.erase(found);
  give(std::move(reply));
}

void StoreBroker::answer_all(const absl::Status& status) {
  std::map<Ticket, Request> over;
  over.swap(open_);
  for (auto& [ticket, entry] : over)
    entry.answer(status);
}

}  // namespace muster::agent
