// SPDX-License-Identifier: Apache-2.0
//
// What this process takes of its machine, by the names that Prometheus' own clients use.
//
// Thread rule: any thread. Source: /proc/self, proc(5).
#pragma once

#include "launcher/http/metrics_text.h"

namespace muster::http {

// What cannot be read is left out.
void render_process(MetricsText& out);

}  // namespace muster::http
