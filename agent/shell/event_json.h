// SPDX-License-Identifier: Apache-2.0
//
// Events as text, without the file they go to. Included through event_writer.h by users; a header
// of its own so that the pure half can be tested and fuzzed alone.
//
// Thread rule: pure functions, any thread.
#pragma once

#include <cstdint>
#include <string>

#include "proto/base/events.h"
#include "proto/base/ids.h"

namespace muster {

// What a line says besides the event itself.
struct EventStamp {
  std::int64_t unix_us = 0;  // wall clock [us since 1970, UTC]
  std::uint64_t seq = 0;
  JobId job;
  RunId run;
};

// One JSON object in one line, without the newline. Never fails: bytes that are not UTF-8 are
// replaced by U+FFFD.
std::string render_event(const EventStamp& stamp, const JobEvent& event);

// A failure as it stands in generation_failed: one JSON object.
std::string render_failure(const Failure& failure);

// "2026-01-31T12:00:00.000123Z" for microseconds since 1970.
std::string format_utc(std::int64_t unix_us);

// A name made fit to be one component of a path: everything but letters, digits and ".-_=+@,"
// becomes '_', as does a leading '.'; at most 200 bytes. Where something was replaced or cut, '-'
// and 8 hex digits of the name's hash follow, so that different names stay different. Empty: "_".
std::string path_component(const std::string& name);

}  // namespace muster
