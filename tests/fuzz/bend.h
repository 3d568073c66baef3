// SPDX-License-Identifier: Apache-2.0
//
// Changes to a message by its own description: any field, at any depth, gets a number, a text or
// a length at which things break. Raw bytes rarely form a message that is nearly right; these do.
#pragma once

#include <google/protobuf/message.h>

#include "tests/fuzz/input.h"

namespace muster::fuzz {

// One field of `message` or of what is below it.
void bend(google::protobuf::Message& message, Input& input);

// `times` of them, at most.
inline void bend(google::protobuf::Message& message, Input& input, std::uint32_t times) {
  for (std::uint32_t i = 0; i < times && !input.empty(); ++i)
    bend(message, input);
}

}  // namespace muster::fuzz
