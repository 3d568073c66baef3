// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/event_json.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <string_view>
#include <variant>

#include <nlohmann/json.hpp>

#include "proto/base/check.h"
#include "proto/base/rng.h"

namespace muster {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kNameBytes = 200;

template <typename Value>
void put_if(Json& out, const char* key, const std::optional<Value>& value) {
  if (value) out[key] = *value;
}

Json failure_json(const Failure& failure) {
  Json out;
  out["node"] = failure.node;
  put_if(out, "rank", failure.rank);
  put_if(out, "local_rank", failure.local_rank);
  put_if(out, "pid", failure.pid);
  out["kind"] = to_word(failure.kind);
  put_if(out, "exit_code", failure.exit_code);
  if (failure.signal) out["signal"] = signal_name(*failure.signal);
  if (failure.core_dumped) out["core_dumped"] = true;
  if (!failure.stacks.empty()) out["stacks"] = failure.stacks;
  if (!failure.detail.empty()) out["detail"] = failure.detail;
  out["stderr_tail"] = failure.stderr_tail;
  out["ambiguous"] = failure.ambiguous;
  if (failure.torn_down) out["torn_down"] = true;
  return out;
}

const char* to_word(event::NodeLeft::Why why) {
  using Why = event::NodeLeft::Why;
  switch (why) {
    case Why::kLeave: return "leave";
    case Why::kLost: return "lost";
    case Why::kEvicted: return "evicted";
    case Why::kQuarantined: return "quarantined";
    case Why::kPreempted: return "preempted";
    case Why::kDrained: return "drained";
  }
  check_failed("NodeLeft::Why in range", __FILE__, __LINE__);
}

// The fault as it stands in the plan: JSON inside JSON, not a string that holds JSON.
Json fault_json(const std::string& text) {
  Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return parsed.is_discarded() ? Json(text) : parsed;
}

// Adds an event's own fields.
struct Fields {
  Json& out;

  void operator()(const event::JobStarted& body) const {
    out["min_nodes"] = body.min_nodes;
    out["max_nodes"] = body.max_nodes;
    out["max_restarts"] = body.max_restarts;
  }
  void operator()(const event::NodeJoined& body) const {
    out["host"] = body.host;
    out["addr"] = body.addr;
    out["slots"] = body.slots;
    out["role"] = body.spare ? "spare" : "member";
    out["incarnation"] = body.incarnation;
  }
  void operator()(const event::NodeLeft& body) const { out["reason"] = to_word(body.why); }
  void operator()(const event::GenerationFormed& body) const {
    out["world_size"] = body.world_size;
    Json nodes = Json::array();
    for (const MemberRanks& member : body.nodes) {
      Json node;
      node["node"] = member.node;
      node["group_rank"] = member.group_rank;
      node["first_rank"] = member.first_rank;
      node["count"] = member.count;
      nodes.push_back(std::move(node));
    }
    out["nodes"] = std::move(nodes);
    out["master_addr"] = body.master_addr;
    out["master_port"] = body.master_port;
    out["reason"] = muster::to_word(body.reason);
  }
  void operator()(const event::WorkerStarted& body) const { out["argv0"] = body.argv0; }
  void operator()(const event::WorkerEnded& body) const {
    put_if(out, "exit_code", body.exit_code);
    if (body.signal) out["signal"] = signal_name(*body.signal);
    out["torn_down"] = body.torn_down;
    out["max_rss_bytes"] = body.max_rss_bytes;
    out["run_s"] = to_seconds(body.run);
    if (!body.stacks.empty()) out["stacks"] = body.stacks;
  }
  void operator()(const event::GenerationRunning& body) const {
    out["form_s"] = to_seconds(body.form);
    out["spawn_s"] = to_seconds(body.spawn);
  }
  void operator()(const event::GenerationFailed& body) const {
    out["first_cause"] = failure_json(body.first_cause);
    Json victims = Json::array();
    for (const Failure& victim : body.victims)
      victims.push_back(failure_json(victim));
    out["victims"] = std::move(victims);
  }
  void operator()(const event::RestartScheduled& body) const {
    out["restarts_used"] = body.restarts_used;
    out["max_restarts"] = body.max_restarts;
    out["charged"] = body.charged;
    out["delay_s"] = to_seconds(body.delay);
  }
  void operator()(const event::Recovered& body) const {
    out["detect_s"] = to_seconds(body.detect);
    out["stop_s"] = to_seconds(body.stop);
    out["form_s"] = to_seconds(body.form);
    out["spawn_s"] = to_seconds(body.spawn);
    out["total_s"] = to_seconds(body.total);
    if (body.first_progress) out["first_progress_s"] = to_seconds(*body.first_progress);
  }
  void operator()(const event::ChaosHit& body) const {
    out["fault"] = fault_json(body.fault);
    out["target"] = body.target;
  }
  void operator()(const event::ChaosMissed& body) const {
    out["fault"] = fault_json(body.fault);
    out["target"] = body.target;
  }
  void operator()(const event::StateLost& body) const { out["reason"] = body.reason; }
  void operator()(const event::ServerRecovered& body) const { out["reason"] = body.reason; }
  void operator()(const event::NodeQuarantined& body) const {
    out["until"] = format_utc(body.until_us);
    out["reason"] = body.reason;
  }
  void operator()(const event::ServerGoing& body) const { out["reason"] = body.reason; }
  void operator()(const event::JobFinished& body) const {
    const Outcome& outcome = body.outcome;
    out["outcome"] = muster::to_word(outcome.kind);
    out["exit_code"] = outcome.exit_code;
    out["exit_class"] = muster::to_word(outcome.exit_class);
    out["restarts_used"] = outcome.restarts_used;
    out["duration_s"] = to_seconds(outcome.duration);
    out["goodput"] = outcome.goodput;
  }
};

}  // namespace

std::string format_utc(std::int64_t unix_us) {
  constexpr std::int64_t kSecond = 1'000'000;
  std::int64_t micros = unix_us % kSecond;
  if (micros < 0) micros += kSecond;
  const std::time_t seconds = static_cast<std::time_t>((unix_us - micros) / kSecond);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 64> day{};
  const std::size_t length = std::strftime(day.data(), day.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  std::array<char, 16> fraction{};
  std::snprintf(fraction.data(), fraction.size(), ".%06dZ", static_cast<int>(micros));
  return std::string(day.data(), length) + fraction.data();
}

std::string render_failure(const Failure& failure) {
  return failure_json(failure).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string render_event(const EventStamp& stamp, const JobEvent& event) {
  Json out;
  out["schema"] = 1;
  out["ts"] = format_utc(stamp.unix_us);
  out["seq"] = stamp.seq;
  out["job"] = stamp.job;
  out["run"] = stamp.run;
  out["event"] = event_name(event.body);
  put_if(out, "generation", event.generation);
  put_if(out, "node", event.node);
  put_if(out, "rank", event.rank);
  put_if(out, "local_rank", event.local_rank);
  put_if(out, "pid", event.pid);
  std::visit(Fields{out}, event.body);
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string path_component(const std::string& name) {
  constexpr std::string_view kFit =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-=+@,";
  std::string out = name.substr(0, kNameBytes);
  for (char& c : out) {
    if (kFit.find(c) == std::string_view::npos) c = '_';
  }
  if (out.empty()) return "_";
  if (out.front() == '.') out.front() = '_';
  if (out != name) {
    std::array<char, 16> hash{};
    std::snprintf(hash.data(), hash.size(), "-%08x",
                  static_cast<unsigned>(hash_text(name) & 0xffffffffU));
    out += hash.data();
  }
  return out;
}

}  // namespace muster
