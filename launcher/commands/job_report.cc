// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/job_report.h"

#include <array>
#include <cstdio>
#include <optional>

#include <nlohmann/json.hpp>

#include "launcher/commands/text.h"
#include "proto/base/time.h"

namespace muster::launcher {
namespace {

using Json = nlohmann::ordered_json;
using rendezvous::JobView;
using rendezvous::MemberView;

std::string seconds(Duration duration) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f s", to_seconds(duration));
  return text.data();
}

Json to_json(const Failure& failure) {
  Json json = {{"node", failure.node}, {"kind", to_word(failure.kind)}};
  if (failure.rank) json["rank"] = *failure.rank;
  if (failure.local_rank) json["local_rank"] = *failure.local_rank;
  if (failure.pid) json["pid"] = *failure.pid;
  if (failure.exit_code) json["exit_code"] = *failure.exit_code;
  if (failure.signal) json["signal"] = signal_name(*failure.signal);
  if (!failure.detail.empty()) json["detail"] = failure.detail;
  return json;
}

Json to_json(const MemberView& member) {
  Json json = {{"node", member.node},
               {"host", member.host},
               {"addr", member.addr},
               {"slots", member.slots},
               {"role", member.role == Role::kSpare ? "spare" : "member"},
               {"incarnation", member.incarnation},
               {"connected", member.connected},
               {"heartbeat_age_s", to_seconds(member.heartbeat_age)}};
  json["suspended"] = member.suspended;
  json["gpus"] = member.gpus;
  if (!member.gpu.empty()) json["gpu"] = member.gpu;
  if (member.ranks) {
    json["group_rank"] = member.ranks->group_rank;
    json["first_rank"] = member.ranks->first_rank;
    json["count"] = member.ranks->count;
  }
  Json progress = Json::array();
  for (const RankProgress& rank : member.progress) {
    Json entry = {{"rank", rank.rank}, {"step", rank.step}, {"age_s", to_seconds(rank.age)}};
    if (rank.checkpoint_step) entry["checkpoint_step"] = *rank.checkpoint_step;
    progress.push_back(std::move(entry));
  }
  json["progress"] = std::move(progress);
  return json;
}

// Medians only where there is something to take them of.
Json to_json(const rendezvous::RecoverySummary& recoveries) {
  Json json = {{"count", recoveries.count}};
  if (recoveries.count == 0) return json;
  json["median_detect_s"] = to_seconds(recoveries.detect);
  json["median_stop_s"] = to_seconds(recoveries.stop);
  json["median_form_s"] = to_seconds(recoveries.form);
  json["median_spawn_s"] = to_seconds(recoveries.spawn);
  json["median_total_s"] = to_seconds(recoveries.total);
  return json;
}

Json to_json(const JobView& job) {
  Json json = {{"job", job.spec.job},
               {"run", job.run},
               {"phase", phase_word(job.phase)},
               {"program", job.spec.program},
               {"min_nodes", job.spec.min_nodes},
               {"max_nodes", job.spec.max_nodes},
               {"generation", job.generation},
               {"world_size", job.world_size},
               {"restarts_used", job.restarts_used},
               {"max_restarts", job.spec.policy.max_restarts},
               {"age_s", to_seconds(job.age)},
               {"goodput", job.goodput},
               {"recoveries", to_json(job.recoveries)}};
  if (!job.master_addr.empty()) {
    json["master_addr"] = job.master_addr;
    json["master_port"] = job.master_port;
  }
  Json members = Json::array();
  for (const MemberView& member : job.members)
    members.push_back(to_json(member));
  json["members"] = std::move(members);
  if (job.last_failure) json["last_failure"] = to_json(*job.last_failure);
  if (job.outcome) {
    json["outcome"] = {{"outcome", to_word(job.outcome->kind)},
                       {"exit_code", job.outcome->exit_code},
                       {"exit_class", to_word(job.outcome->exit_class)},
                       {"text", job.outcome->text}};
  }
  return json;
}

std::string member_line(const MemberView& member) {
  std::string line = cat("  ", member.node, "  ", member.addr.empty() ? "-" : member.addr);
  if (member.ranks) {
    const std::uint32_t first = member.ranks->first_rank;
    const std::uint32_t last = first + member.ranks->count - 1;
    line += first == last ? cat("  rank ", first) : cat("  ranks ", first, "-", last);
  } else {
    line += member.role == Role::kSpare ? "  spare" : "  waiting";
  }
  if (!member.connected) {
    line += cat("  not connected for ", seconds(member.heartbeat_age));
  }
  if (member.suspended) line += "  suspended (SIGTSTP)";
  std::optional<std::uint64_t> low;
  std::optional<std::uint64_t> high;
  for (const RankProgress& rank : member.progress) {
    low = std::min(low.value_or(rank.step), rank.step);
    high = std::max(high.value_or(rank.step), rank.step);
  }
  if (low) line += *low == *high ? cat("  step ", *low) : cat("  steps ", *low, "-", *high);
  if (member.gpus > 0) {
    line += cat("  ", member.gpus, member.gpus == 1 ? " GPU" : " GPUs",
                member.gpu.empty() ? "" : cat(" (", member.gpu, ")"));
  }
  return line + "\n";
}

std::string describe_failure(const Failure& failure) {
  std::string text = cat(to_word(failure.kind), " on ", failure.node);
  if (failure.rank) text += cat(", rank ", *failure.rank);
  if (failure.exit_code) text += cat(", exit code ", *failure.exit_code);
  if (failure.signal) text += cat(", ", signal_name(*failure.signal));
  if (!failure.detail.empty()) text += cat(": ", failure.detail);
  return text;
}

std::string job_text(const JobView& job) {
  std::string text = cat("job ", job.spec.job, ": ", phase_word(job.phase));
  if (job.generation != kNoGeneration) {
    text += cat(", generation ", job.generation, ", ", job.world_size, " ranks");
  }
  text += cat(", restarts ", job.restarts_used, " of ", job.spec.policy.max_restarts, ", for ",
              seconds(job.age), "\n");
  if (job.recoveries.count > 0) {
    text += cat("  recovered ", job.recoveries.count,
                job.recoveries.count == 1 ? " time, in " : " times, in the median in ",
                format_measured(job.recoveries.total), "; goodput ",
                static_cast<int>(100 * job.goodput), " %\n");
  }
  text += cat("  program: ", job.spec.program, "\n");
  if (!job.run.empty()) text += cat("  run: ", job.run, "\n");
  if (job.phase == rendezvous::Phase::kForming && job.waiting.missing > 0) {
    text += cat("  waiting for ", job.waiting.missing, " more of ", job.spec.min_nodes, " nodes\n");
  }
  for (const MemberView& member : job.members)
    text += member_line(member);
  if (job.last_failure) text += cat("  last failure: ", describe_failure(*job.last_failure), "\n");
  if (job.outcome) {
    text += cat("  outcome: ", to_word(job.outcome->kind), ", exit code ", job.outcome->exit_code,
                job.outcome->text.empty() ? "" : cat(" (", job.outcome->text, ")"), "\n");
  }
  return text;
}

}  // namespace

const char* phase_word(rendezvous::Phase phase) {
  switch (phase) {
    case rendezvous::Phase::kForming: return "forming";
    case rendezvous::Phase::kPreparing: return "preparing";
    case rendezvous::Phase::kStarting: return "starting";
    case rendezvous::Phase::kRunning: return "running";
    case rendezvous::Phase::kStopping: return "stopping";
    case rendezvous::Phase::kBackoff: return "backoff";
    case rendezvous::Phase::kRecovering: return "recovering";
    case rendezvous::Phase::kFinished: return "finished";
  }
  return "";
}

std::string report_text(const rendezvous::ServerDescription& server) {
  std::string text;
  for (const JobView& job : server.jobs)
    text += job_text(job);
  if (server.jobs.empty()) text = "no jobs\n";
  if (!server.left_out.empty()) {
    text += cat("left out for its size (--job shows one job alone): ", server.left_out, "\n");
  }
  return text;
}

std::string report_json(const rendezvous::ServerDescription& server) {
  Json jobs = Json::array();
  for (const JobView& job : server.jobs)
    jobs.push_back(to_json(job));
  Json document = {{"schema", 1},
                   {"server",
                    {{"instance", server.server_instance},
                     {"version", server.version},
                     {"host", server.host},
                     {"user", server.user},
                     {"pid", server.pid}}},
                   {"jobs", std::move(jobs)}};
  if (!server.left_out.empty()) document["left_out"] = server.left_out;
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace muster::launcher
