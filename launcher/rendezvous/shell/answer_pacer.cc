// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/shell/answer_pacer.h"

#include <utility>

namespace muster::rendezvous {

void AnswerPacer::take(Store::Answers answers) {
  for (Store::Answer& answer : answers) {
    const bool large = answer.value != nullptr && answer.value->size() >= kLarge;
    if (!large) {
      say_(answer.session, answer.whole());
      continue;
    }
    std::size_t& held = held_of_[answer.session];
    if (held >= kHeldOfSession) {
      say_(answer.session, answer.whole());
      continue;
    }
    ++held;
    held_.push_back(std::move(answer));
    go_on();
  }
}

void AnswerPacer::go_on() {
  while (!held_.empty() && !outgoing_->wait_for_room()) {
    const Store::Answer answer = std::move(held_.front());
    held_.pop_front();
    const auto held = held_of_.find(answer.session);
    if (--held->second == 0) held_of_.erase(held);
    say_(answer.session, answer.whole());
  }
}

}  // namespace muster::rendezvous
