// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "proto/base/ids.h"
#include "proto/base/rng.h"

namespace muster::rendezvous {

// "20260117T093000Z-1a2b": the UTC second in which the run began and 16 random bits.
// `unix_us`: microseconds since 1970, not negative.
RunId mint_run_id(std::int64_t unix_us, Rng& rng);

}  // namespace muster::rendezvous
