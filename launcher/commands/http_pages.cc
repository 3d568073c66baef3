// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/http_pages.h"

#include <utility>

#include "launcher/commands/commands.h"
#include "launcher/commands/text.h"
#include "launcher/http/process_metrics.h"

namespace muster::launcher {
namespace {

constexpr int kUnavailable = 503;

http::Page metrics_page(const HttpPlan& plan) {
  http::MetricsText text;
  text.gauge("muster_build_info", "1, with the version of this process");
  text.sample(1, {{"version", MUSTER_VERSION}});
  plan.render(text);
  http::render_process(text);
  return {200, text.text()};
}

http::Page ready_page(const HttpPlan& plan) {
  const std::string why = plan.unready();
  if (why.empty()) return {200, "ready\n"};
  return {kUnavailable, why + "\n"};
}

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<http::HttpDoor>>> open_http(boost::asio::io_context& io,
                                                                       const HttpPlan& plan) {
  std::vector<std::unique_ptr<http::HttpDoor>> doors;
  const http::Pages::value_type metrics{"/metrics", [plan] { return metrics_page(plan); }};
  const auto open = [&](const char* flag, const Endpoint& at, http::Pages pages) {
    auto door = http::HttpDoor::open(io, at.host, at.port, std::move(pages));
    if (!door.ok()) {
      return absl::UnavailableError(cat("--", flag, " ", at.text(), ": ", door.status().message()));
    }
    if (at.port == 0) say(cat("--", flag, " listens on port ", (*door)->port()));
    doors.push_back(*std::move(door));
    return absl::OkStatus();
  };
  if (plan.http) {
    const absl::Status opened =
        open("http", *plan.http,
             {metrics,
              // That it answers is the proof: whatever holds up this loop holds up the job.
              {"/livez",
               [] {
                 return http::Page{200, "alive\n"};
               }},
              {"/readyz", [plan] { return ready_page(plan); }}});
    if (!opened.ok()) return opened;
  }
  if (plan.metrics && plan.metrics != plan.http) {
    const absl::Status opened = open("metrics-addr", *plan.metrics, {metrics});
    if (!opened.ok()) return opened;
  }
  return doors;
}

}  // namespace muster::launcher
