// SPDX-License-Identifier: Apache-2.0
#include "launcher/http/job_metrics.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace muster::http {
namespace {

using rendezvous::JobView;
using rendezvous::MemberView;

// Of all ranks that report; nullopt: none does.
struct Steps {
  std::optional<std::uint64_t> lowest;
  std::optional<std::uint64_t> highest;
  std::optional<std::uint64_t> checkpoint;
};

Steps steps_of(const JobView& job) {
  Steps steps;
  for (const MemberView& member : job.members) {
    for (const RankProgress& progress : member.progress) {
      steps.lowest = std::min(steps.lowest.value_or(progress.step), progress.step);
      steps.highest = std::max(steps.highest.value_or(progress.step), progress.step);
      if (progress.checkpoint_step) {
        steps.checkpoint = std::max(steps.checkpoint.value_or(0), *progress.checkpoint_step);
      }
    }
  }
  return steps;
}

std::size_t members_of(const JobView& job, Role role, bool connected) {
  return static_cast<std::size_t>(
      std::count_if(job.members.begin(), job.members.end(), [&](const MemberView& member) {
        return member.role == role && member.connected == connected;
      }));
}

double oldest_heartbeat_s(const JobView& job) {
  Duration oldest{0};
  for (const MemberView& member : job.members)
    oldest = std::max(oldest, member.heartbeat_age);
  return std::chrono::duration<double>(oldest).count();
}

// One sample a job where `value` has one.
template <class Value>
void each(const std::vector<JobView>& jobs, MetricsText& out, Value value) {
  for (const JobView& job : jobs) {
    const std::optional<double> found = value(job);
    if (found) out.sample(*found, {{"job", job.spec.job}});
  }
}

std::optional<double> known(std::optional<std::uint64_t> step) {
  if (!step) return std::nullopt;
  return static_cast<double>(*step);
}

void render_members(const std::vector<JobView>& jobs, MetricsText& out) {
  out.gauge("muster_job_nodes", "Nodes of a job, by part and by whether their stream is open");
  for (const JobView& job : jobs) {
    for (const auto& [role, name] :
         {std::pair{Role::kMember, "member"}, std::pair{Role::kSpare, "spare"}}) {
      for (const bool connected : {true, false}) {
        out.sample(
            static_cast<double>(members_of(job, role, connected)),
            {{"job", job.spec.job}, {"role", name}, {"connected", connected ? "true" : "false"}});
      }
    }
  }
  out.gauge("muster_job_heartbeat_age_seconds", "Age of the oldest of the nodes' last heartbeats");
  each(jobs, out, [](const JobView& job) -> std::optional<double> {
    return job.members.empty() ? std::nullopt : std::optional(oldest_heartbeat_s(job));
  });
}

void render_progress(const std::vector<JobView>& jobs, MetricsText& out) {
  out.gauge("muster_job_lowest_step", "Step of the slowest rank that reports progress");
  each(jobs, out, [](const JobView& job) { return known(steps_of(job).lowest); });
  out.gauge("muster_job_highest_step", "Step of the fastest rank that reports progress");
  each(jobs, out, [](const JobView& job) { return known(steps_of(job).highest); });
  out.gauge("muster_job_checkpoint_step", "Step of the newest checkpoint that was reported");
  each(jobs, out, [](const JobView& job) { return known(steps_of(job).checkpoint); });
}

}  // namespace

void render_jobs(const std::vector<JobView>& jobs, MetricsText& out) {
  out.gauge("muster_jobs", "Jobs that this server knows, by whether they are over");
  const auto over = std::count_if(jobs.begin(), jobs.end(),
                                  [](const JobView& job) { return job.outcome.has_value(); });
  out.sample(static_cast<double>(jobs.size()) - static_cast<double>(over), {{"state", "live"}});
  out.sample(static_cast<double>(over), {{"state", "over"}});
  out.gauge("muster_job_running", "1: all workers of the job's newest generation were started");
  each(jobs, out, [](const JobView& job) -> std::optional<double> {
    return job.phase == rendezvous::Phase::kRunning ? 1 : 0;
  });
  out.gauge("muster_job_generation", "Number of the job's newest generation, from 0");
  each(jobs, out, [](const JobView& job) -> std::optional<double> {
    if (job.generation == kNoGeneration) return std::nullopt;
    return job.generation;
  });
  out.gauge("muster_job_world_size", "Ranks of that generation");
  each(jobs, out, [](const JobView& job) -> std::optional<double> { return job.world_size; });
  out.counter("muster_job_restarts_total", "Restarts charged to --max-restarts");
  each(jobs, out, [](const JobView& job) -> std::optional<double> { return job.restarts_used; });
  out.gauge("muster_job_max_restarts", "--max-restarts");
  each(jobs, out,
       [](const JobView& job) -> std::optional<double> { return job.spec.policy.max_restarts; });
  out.gauge("muster_job_goodput_ratio", "Share of the job's time that was not lost");
  each(jobs, out, [](const JobView& job) -> std::optional<double> { return job.goodput; });
  out.counter("muster_job_recoveries_total", "Times that all workers ran again after a failure");
  each(jobs, out, [](const JobView& job) { return known(job.recoveries.count); });
  out.gauge("muster_job_age_seconds", "Time since the job started");
  each(jobs, out, [](const JobView& job) -> std::optional<double> {
    return std::chrono::duration<double>(job.age).count();
  });
  out.gauge("muster_job_outcome", "1 for the outcome of a job that is over");
  for (const JobView& job : jobs) {
    if (!job.outcome) continue;
    out.sample(1, {{"job", job.spec.job}, {"outcome", to_word(job.outcome->kind)}});
  }
  render_members(jobs, out);
  render_progress(jobs, out);
}

}  // namespace muster::http
