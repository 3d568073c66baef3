// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/shell/store.h"

#include <charconv>
#include <limits>

namespace muster::rendezvous {
namespace {

// A wait longer than this is this long; keeps deadlines from overflowing.
constexpr Duration kLongestWait = std::chrono::hours(24 * 365);

StoreReply refused(std::string text) {
  StoreReply reply;
  reply.status = StoreReply::Status::kRefused;
  reply.text = std::move(text);
  return reply;
}

StoreReply with_status(StoreReply::Status status) {
  StoreReply reply;
  reply.status = status;
  return reply;
}

// The whole text as a decimal number.
std::optional<std::int64_t> number_in(const std::string& text) {
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return number;
}

}  // namespace

StoreReply Store::Answer::whole() const {
  StoreReply out = reply;
  if (value != nullptr) out.value = *value;
  return out;
}

void Store::open(const JobId& job, Generation generation) {
  spaces_.try_emplace(SpaceId{job, generation});
}

Store::Answers Store::close(const JobId& job, Generation generation) {
  Answers answers;
  const auto space = spaces_.find(SpaceId{job, generation});
  if (space == spaces_.end()) return answers;
  std::vector<WaiterId> over;
  for (const auto& [key, waiting] : space->second.waiting) {
    over.insert(over.end(), waiting.begin(), waiting.end());
  }
  for (const WaiterId id : over) {
    const Waiter& waiter = waiters_.at(id);
    StoreReply reply = with_status(StoreReply::Status::kStale);
    reply.id = waiter.request;
    answers.push_back({waiter.session, std::move(reply), nullptr});
    drop(id);
  }
  all_bytes_ -= space->second.bytes;
  all_keys_ -= space->second.values.size();
  spaces_.erase(space);
  return answers;
}

bool Store::restore(const JobId& job, Generation generation, const std::string& key,
                    const std::string& value) {
  const auto space = spaces_.find(SpaceId{job, generation});
  if (space == spaces_.end()) return false;
  return put(space->second, key, value).status == StoreReply::Status::kOk;
}

Store::Answers Store::ask(SessionId session, const JobId& job, const StoreRequest& request,
                          Instant now, std::optional<Change>* change) {
  Answers answers;
  if (request.op == StoreRequest::Op::kCancel) {
    cancel(session, request.id);
    return answers;
  }
  const SpaceId id{job, request.generation};
  const auto found = spaces_.find(id);
  std::optional<Answer> answer = Answer{session, {}, nullptr};
  bool changed = false;
  if (found == spaces_.end()) {
    answer->reply.status = StoreReply::Status::kStale;
  } else {
    Space& space = found->second;
    switch (request.op) {
      case StoreRequest::Op::kSet: answer->reply = put(space, request.key, request.value); break;
      case StoreRequest::Op::kAdd: answer->reply = add(space, request.key, request.delta); break;
      case StoreRequest::Op::kGet: answer = get(id, session, request, now); break;
      case StoreRequest::Op::kDelete:
        if (!remove(space, request.key)) answer->reply.status = StoreReply::Status::kNotFound;
        break;
      case StoreRequest::Op::kCancel: break;  // above
    }
    changed =
        request.op != StoreRequest::Op::kGet && answer->reply.status == StoreReply::Status::kOk;
  }
  if (answer) {
    answer->reply.id = request.id;
    answers.push_back(*std::move(answer));
  }
  if (!changed) return answers;
  Space& space = found->second;
  const auto value = space.values.find(request.key);
  if (value != space.values.end()) wake(space, request.key, answers);
  if (change == nullptr) return answers;
  *change = Change{request.key, std::nullopt};
  if (value != space.values.end()) (*change)->value = *value->second;
  return answers;
}

std::optional<Store::Answer> Store::get(const SpaceId& id, SessionId session,
                                        const StoreRequest& request, Instant now) {
  const Space& space = spaces_.at(id);
  if (const auto value = space.values.find(request.key); value != space.values.end()) {
    return Answer{session, {}, value->second};
  }
  if (request.wait <= 0ns) {
    return Answer{session, with_status(StoreReply::Status::kNotFound), nullptr};
  }
  std::string against = wait(id, session, request, now);
  if (against.empty()) return std::nullopt;
  return Answer{session, refused(std::move(against)), nullptr};
}

bool Store::remove(Space& space, const std::string& key) {
  const auto value = space.values.find(key);
  if (value == space.values.end()) return false;
  const std::size_t bytes = key.size() + value->second->size();
  space.bytes -= bytes;
  all_bytes_ -= bytes;
  --all_keys_;
  space.values.erase(value);
  return true;
}

StoreReply Store::put(Space& space, const std::string& key, std::string value) {
  if (key.empty() || key.size() > kMaxStoreKeyBytes) {
    return refused("a key has 1 to " + std::to_string(kMaxStoreKeyBytes) + " bytes");
  }
  if (value.size() > kMaxStoreValueBytes) {
    return refused("a value has at most " + std::to_string(kMaxStoreValueBytes) + " bytes");
  }
  const auto old = space.values.find(key);
  const bool is_new = old == space.values.end();
  if (is_new && space.values.size() >= limits_.keys) {
    return refused("the store has its " + std::to_string(limits_.keys) + " keys");
  }
  if (is_new && all_keys_ >= limits_.all_keys) {
    return refused("the stores of all jobs of this server have their " +
                   std::to_string(limits_.all_keys) + " keys");
  }
  const std::size_t before = is_new ? 0 : key.size() + old->second->size();
  const std::size_t after = key.size() + value.size();
  if (space.bytes - before + after > limits_.bytes) {
    return refused("the store is full (" + std::to_string(limits_.bytes) + " bytes)");
  }
  if (all_bytes_ - before + after > limits_.all_bytes) {
    return refused("the stores of all jobs of this server are full (" +
                   std::to_string(limits_.all_bytes) + " bytes)");
  }
  space.bytes += after - before;
  all_bytes_ += after - before;
  if (is_new) ++all_keys_;
  space.values[key] = std::make_shared<const std::string>(std::move(value));
  return {};
}

StoreReply Store::add(Space& space, const std::string& key, std::int64_t delta) {
  std::int64_t number = 0;
  if (const auto old = space.values.find(key); old != space.values.end()) {
    const std::optional<std::int64_t> held = number_in(*old->second);
    if (!held) return refused("the value under this key is not a number");
    number = *held;
  }
  std::int64_t sum = 0;
  if (__builtin_add_overflow(number, delta, &sum)) return refused("the sum does not fit 64 bits");
  StoreReply reply = put(space, key, std::to_string(sum));
  reply.number = sum;
  return reply;
}

void Store::wake(Space& space, const std::string& key, Answers& answers) {
  const auto waiting = space.waiting.find(key);
  if (waiting == space.waiting.end()) return;
  const std::set<WaiterId> satisfied = waiting->second;
  const Value& value = space.values.at(key);
  for (const WaiterId id : satisfied) {
    const Waiter& waiter = waiters_.at(id);
    StoreReply reply;
    reply.id = waiter.request;
    answers.push_back({waiter.session, std::move(reply), value});
    drop(id);
  }
}

std::string Store::wait(const SpaceId& id, SessionId session, const StoreRequest& request,
                        Instant now) {
  Space& space = spaces_.at(id);
  if (space.waiter_count >= limits_.waiters) {
    return std::to_string(limits_.waiters) + " ranks wait for keys of this generation already";
  }
  if (waiters_.size() >= limits_.all_waiters) {
    return std::to_string(limits_.all_waiters) + " ranks wait for keys of this server already";
  }
  const WaiterId waiter = ++last_waiter_;
  const Instant deadline = now + std::min(request.wait, kLongestWait);
  waiters_[waiter] = {id, request.key, session, request.id, deadline};
  space.waiting[request.key].insert(waiter);
  ++space.waiter_count;
  by_session_[session].insert({request.id, waiter});
  by_deadline_.insert({deadline, waiter});
  return "";
}

// Out of all indexes. Its space must still exist.
void Store::drop(WaiterId id) {
  const auto found = waiters_.find(id);
  const Waiter& waiter = found->second;
  Space& space = spaces_.at(waiter.space);
  const auto waiting = space.waiting.find(waiter.key);
  waiting->second.erase(id);
  if (waiting->second.empty()) space.waiting.erase(waiting);
  --space.waiter_count;
  const auto session = by_session_.find(waiter.session);
  session->second.erase({waiter.request, id});
  if (session->second.empty()) by_session_.erase(session);
  by_deadline_.erase({waiter.deadline, id});
  waiters_.erase(found);
}

void Store::forget(SessionId session) {
  const auto found = by_session_.find(session);
  if (found == by_session_.end()) return;
  const auto gone = found->second;
  for (const auto& [request, id] : gone)
    drop(id);
}

void Store::cancel(SessionId session, std::uint64_t request) {
  const auto found = by_session_.find(session);
  if (found == by_session_.end()) return;
  const auto waiter = found->second.lower_bound({request, 0});
  if (waiter != found->second.end() && waiter->first == request) drop(waiter->second);
}

Store::Answers Store::expire(Instant now) {
  Answers answers;
  while (!by_deadline_.empty() && by_deadline_.begin()->first <= now) {
    const WaiterId id = by_deadline_.begin()->second;
    const Waiter& waiter = waiters_.at(id);
    StoreReply reply = with_status(StoreReply::Status::kNotFound);
    reply.id = waiter.request;
    answers.push_back({waiter.session, std::move(reply), nullptr});
    drop(id);
  }
  return answers;
}

std::optional<Instant> Store::next_deadline() const {
  if (by_deadline_.empty()) return std::nullopt;
  return by_deadline_.begin()->first;
}

}  // namespace muster::rendezvous
