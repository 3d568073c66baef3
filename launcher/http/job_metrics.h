// SPDX-License-Identifier: Apache-2.0
//
// What a rendezvous server knows of its jobs, as metrics. Pure.
#pragma once

#include <vector>

#include "launcher/http/metrics_text.h"
#include "launcher/rendezvous/core/rendezvous.h"

namespace muster::http {

void render_jobs(const std::vector<rendezvous::JobView>& jobs, MetricsText& out);

}  // namespace muster::http
