// SPDX-License-Identifier: Apache-2.0
//
// What the border promises of everything that it lets in, said a second time and differently: by
// the names of the fields, whatever message they are in. Ends the process where one is not kept.
#pragma once

#include <google/protobuf/message.h>

namespace muster::fuzz {

// `message` was written from what the border accepted.
void expect_in_range(const google::protobuf::Message& message);

}  // namespace muster::fuzz
