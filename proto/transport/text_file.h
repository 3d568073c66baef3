// SPDX-License-Identifier: Apache-2.0
//
// A file that a person named on the command line, read whole: a configuration, a fault plan.
// Such a name may be anything; whatever it is, the answer comes soon and says what is wrong.
#pragma once

#include <cstddef>
#include <string>

#include <absl/status/statusor.h>

namespace muster::transport {

// Pipes are read too (`--config <(...)`), as long as somebody writes. Errors, without the path:
// the system's reason, a directory, no writer, longer than `most_bytes`.
absl::StatusOr<std::string> read_text_file(const std::string& path, std::size_t most_bytes);

}  // namespace muster::transport
