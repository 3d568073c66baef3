// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/core/quarantine.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "proto/base/check.h"

namespace muster::rendezvous {

namespace {

constexpr std::size_t kOffendersKept = 1024;  // nodes come and go under ever new names

}  // namespace

bool QuarantineBook::blame(const NodeName& node, Instant now) {
  if (rule_.causes == 0) return false;
  forget_old(now);
  std::deque<Instant>& causes = offenders_[node].causes;
  causes.push_back(now);
  while (causes.size() > rule_.causes)
    causes.pop_front();
  return causes.size() == rule_.causes;
}

void QuarantineBook::forget_old(Instant now) {
  for (auto& [name, offender] : offenders_) {
    std::deque<Instant>& causes = offender.causes;
    while (!causes.empty() && now - causes.front() > rule_.window)
      causes.pop_front();
  }
  std::erase_if(offenders_, [](const auto& entry) {
    const Offender& offender = entry.second;
    return offender.causes.empty() && offender.times == 0 && !offender.until;
  });
  if (offenders_.size() < kOffendersKept) return;
  const auto mildest =
      std::min_element(offenders_.begin(), offenders_.end(), [](const auto& a, const auto& b) {
        const auto weight = [](const Offender& offender) {
          return std::tuple(offender.until.has_value(), offender.times, offender.causes.size());
        };
        return weight(a.second) < weight(b.second);
      });
  offenders_.erase(mildest);
}

Duration QuarantineBook::length(std::uint32_t times) const {
  const Duration longest = std::max(kLongestQuarantine, rule_.cooldown);
  Duration length = rule_.cooldown;
  for (; times > 0 && length < longest && length > Duration{0}; --times)
    length = length > longest / 2 ? longest : 2 * length;
  return length;
}

Instant QuarantineBook::confine(const NodeName& node, Instant now) {
  const auto found = offenders_.find(node);
  MUSTER_CHECK(found != offenders_.end());
  Offender& offender = found->second;
  offender.causes.clear();
  offender.until = now + length(offender.times++);
  return *offender.until;
}

void QuarantineBook::release(const NodeName& node) {
  const auto found = offenders_.find(node);
  if (found != offenders_.end()) found->second.until.reset();
}

std::vector<NodeName> QuarantineBook::due(Instant now) const {
  std::vector<NodeName> over;
  for (const auto& [name, offender] : offenders_) {
    if (offender.until && *offender.until <= now) over.push_back(name);
  }
  return over;
}

std::optional<Instant> QuarantineBook::until(const NodeName& node) const {
  const auto found = offenders_.find(node);
  return found == offenders_.end() ? std::nullopt : found->second.until;
}

std::optional<Instant> QuarantineBook::next_release() const {
  std::optional<Instant> next;
  for (const auto& [name, offender] : offenders_)
    next = earlier(next, offender.until);
  return next;
}

void QuarantineBook::restore(const NodeName& node, Offender from, Instant now) {
  if (from.until) {
    const Duration most = length(from.times > 0 ? from.times - 1 : 0);
    from.until = std::min(*from.until, now + most);
  }
  offenders_[node] = std::move(from);
}

}  // namespace muster::rendezvous
