// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/chaos_plan.h"

#include <initializer_list>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "launcher/commands/options.h"
#include "launcher/commands/text.h"
#include "proto/base/job.h"
#include "proto/base/json_mistake.h"
#include "proto/base/nearest.h"
#include "proto/transport/text_file.h"

namespace muster::launcher {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostFaults = 1000;
constexpr std::size_t kMostBytes = 1U << 20U;

struct ActionWord {
  std::string_view word;
  std::optional<FaultAction> action;  // nullopt: a later version's
};
constexpr ActionWord kActions[] = {{"kill", FaultAction::kKill},
                                   {"stop", FaultAction::kStop},
                                   {"kill-agent", FaultAction::kKillAgent},
                                   {"exit", FaultAction::kExit},
                                   {"slow", FaultAction::kSlow},
                                   {"preempt", FaultAction::kPreempt},
                                   {"partition", FaultAction::kPartition},
                                   {"delay", FaultAction::kDelay},
                                   {"oom", {}},
                                   {"kill-server", {}},
                                   {"disk-full", {}}};

absl::Status wrong(const std::string& pointer, std::string_view what) {
  return absl::InvalidArgumentError(cat(pointer.empty() ? "/" : pointer, ": ", what));
}

// A key of the JSON pointer standard: '~' and '/' inside are escaped.
std::string below(const std::string& pointer, std::string_view key) {
  std::string text = pointer + "/";
  for (const char c : key) {
    if (c == '~') {
      text += "~0";
    } else if (c == '/') {
      text += "~1";
    } else {
      text += c;
    }
  }
  return text;
}

absl::Status check_keys(const Json& object, const std::string& pointer,
                        std::initializer_list<const char*> known,
                        std::initializer_list<const char*> later = {}) {
  if (!object.is_object()) return wrong(pointer, "must be an object");
  for (const auto& [key, value] : object.items()) {
    bool found = false;
    for (const char* name : known)
      found = found || key == name;
    if (found) continue;
    for (const char* name : later) {
      if (key == name) return wrong(below(pointer, key), "is not in this version");
    }
    const std::string near = nearest(key, std::vector<std::string>(known.begin(), known.end()));
    return wrong(below(pointer, key),
                 cat("unknown key", near.empty() ? "" : cat("; did you mean ", near, "?")));
  }
  return absl::OkStatus();
}

template <typename Number>
absl::Status read_count(const Json& object, const std::string& pointer, const char* key,
                        std::optional<Number>& value) {
  const auto found = object.find(key);
  if (found == object.end()) return absl::OkStatus();
  const bool fits = found->is_number_unsigned() &&
                    found->template get<std::uint64_t>() <=
                        static_cast<std::uint64_t>(std::numeric_limits<Number>::max());
  if (!fits) return wrong(below(pointer, key), "must be a whole number from 0");
  value = static_cast<Number>(found->template get<std::uint64_t>());
  return absl::OkStatus();
}

absl::Status read_duration(const Json& object, const std::string& pointer, const char* key,
                           std::optional<Duration>& value) {
  const auto found = object.find(key);
  if (found == object.end()) return absl::OkStatus();
  if (found->is_string()) value = parse_duration(found->get<std::string>());
  if (found->is_number()) value = parse_duration(found->dump());
  if (!value) return wrong(below(pointer, key), "must be a duration like \"500ms\", \"2s\" or 2.5");
  return absl::OkStatus();
}

template <typename Value>
absl::Status read_word(const Json& object, const std::string& pointer, const char* key,
                       std::initializer_list<std::pair<const char*, Value>> words,
                       std::optional<Value>& value) {
  const auto found = object.find(key);
  if (found == object.end()) return absl::OkStatus();
  std::string known;
  for (const auto& [word, meaning] : words) {
    if (*found == word) value = meaning;
    known += cat(known.empty() ? "\"" : ", \"", word, "\"");
  }
  return value ? absl::OkStatus() : wrong(below(pointer, key), cat("must be one of ", known));
}

std::string_view word_of(FaultAction action) {
  for (const ActionWord& known : kActions) {
    if (known.action == action) return known.word;
  }
  return "?";
}

absl::Status read_action(const Json& json, const std::string& pointer, Fault& fault) {
  const auto found = json.find("do");
  if (found == json.end()) return wrong(pointer, "needs \"do\": what is to be done");
  if (!found->is_string()) return wrong(below(pointer, "do"), "must be a text");
  const std::string word = found->get<std::string>();
  std::vector<std::string> candidates;
  for (const ActionWord& known : kActions) {
    if (known.action) candidates.emplace_back(known.word);
    if (known.word != word) continue;
    if (!known.action) {
      return wrong(below(pointer, "do"), cat("'", word, "' is not in this version"));
    }
    fault.action = *known.action;
    return absl::OkStatus();
  }
  const std::string near = nearest(word, candidates);
  return wrong(below(pointer, "do"), cat("unknown action '", word, "'",
                                         near.empty() ? cat("; known: ", join(candidates, ", "))
                                                      : cat("; did you mean ", near, "?")));
}

absl::Status read_trigger(const Json& json, const std::string& parent, FaultTrigger& when) {
  const auto found = json.find("when");
  if (found == json.end()) return wrong(parent, "needs \"when\": {\"step\"} or {\"after\"}");
  const std::string pointer = below(parent, "when");
  absl::Status status =
      check_keys(*found, pointer, {"generation", "step", "after"}, {"line", "every", "times"});
  if (!status.ok()) return status;
  std::optional<Generation> generation;
  status = read_count(*found, pointer, "generation", generation);
  if (!status.ok()) return status;
  when.generation = generation.value_or(0);
  status = read_count(*found, pointer, "step", when.step);
  if (!status.ok()) return status;
  status = read_duration(*found, pointer, "after", when.after);
  if (!status.ok()) return status;
  if (when.step.has_value() == when.after.has_value()) {
    return wrong(pointer, when.step ? "has both \"step\" and \"after\"; one decides"
                                    : "needs \"step\" or \"after\"");
  }
  return absl::OkStatus();
}

absl::Status read_target(const Json& json, const std::string& parent, Fault& fault) {
  const auto found = json.find("on");
  if (found == json.end()) {
    return wrong(parent, "needs \"on\": {\"rank\"}, {\"local_rank\"}, {\"node\"} or {\"random\"}");
  }
  const std::string pointer = below(parent, "on");
  absl::Status status = check_keys(*found, pointer, {"rank", "local_rank", "node", "random"});
  if (!status.ok()) return status;
  FaultTarget& on = fault.on;
  status = read_count(*found, pointer, "rank", on.rank);
  if (!status.ok()) return status;
  status = read_count(*found, pointer, "local_rank", on.local_rank);
  if (!status.ok()) return status;
  if (const auto node = found->find("node"); node != found->end()) {
    if (!node->is_string() || node->get<std::string>().empty()) {
      return wrong(below(pointer, "node"), "must be a node's name");
    }
    on.node = node->get<std::string>();
  }
  status = read_word(*found, pointer, "random",
                     {{"rank", RandomVictim::kRank}, {"node", RandomVictim::kNode}}, on.random);
  if (!status.ok()) return status;
  const int chosen =
      (on.rank ? 1 : 0) + (on.local_rank ? 1 : 0) + (on.node ? 1 : 0) + (on.random ? 1 : 0);
  if (chosen != 1) {
    return wrong(pointer, "needs exactly one of \"rank\", \"local_rank\", \"node\", \"random\"");
  }
  if (hits_agent(fault.action) && on.local_rank) {
    return wrong(below(pointer, "local_rank"),
                 cat("does not name one agent; ", word_of(fault.action),
                     " takes \"node\", \"rank\" or \"random\""));
  }
  return absl::OkStatus();
}

absl::Status read_signal(const Json& json, const std::string& pointer, Fault& fault) {
  const auto found = json.find("signal");
  if (found == json.end()) return absl::OkStatus();
  std::optional<int> number;
  if (found->is_string()) number = signal_number(found->get<std::string>());
  if (found->is_number_unsigned()) number = signal_number(found->dump());
  if (!number) return wrong(below(pointer, "signal"), "must be a signal's name or number");
  fault.signal = *number;
  return absl::OkStatus();
}

absl::Status read_exit_code(const Json& json, const std::string& pointer, Fault& fault) {
  std::optional<std::uint8_t> code;
  const absl::Status status = read_count(json, pointer, "code", code);
  if (status.ok() && code) fault.exit_code = *code;
  return status.ok() ? status : wrong(below(pointer, "code"), "must be an exit code, 0 to 255");
}

absl::Status read_factor(const Json& json, const std::string& pointer, Fault& fault) {
  constexpr double kMost = 1000;
  const auto found = json.find("factor");
  const bool fits = found != json.end() && found->is_number() && found->get<double>() > 1 &&
                    found->get<double>() <= kMost;
  if (!fits) {
    return wrong(below(pointer, "factor"), "must be how many times slower: above 1, at most 1000");
  }
  fault.factor = found->get<double>();
  return absl::OkStatus();
}

// "for" and "by", "direction".
absl::Status read_link_fault(const Json& json, const std::string& pointer, Fault& fault) {
  if (!json.contains("for")) {
    return wrong(pointer, cat(word_of(fault.action), " needs \"for\": how long"));
  }
  if (fault.action == FaultAction::kPartition) {
    std::optional<LinkDirection> direction;
    const absl::Status status = read_word(
        json, pointer, "direction",
        {{"both", LinkDirection::kBoth}, {"in", LinkDirection::kIn}, {"out", LinkDirection::kOut}},
        direction);
    fault.direction = direction.value_or(LinkDirection::kBoth);
    return status;
  }
  std::optional<Duration> by;
  if (!json.contains("by")) return wrong(pointer, "delay needs \"by\": how much later");
  const absl::Status status = read_duration(json, pointer, "by", by);
  fault.by = by.value_or(Duration{0});
  return status;
}

// The keys of one action besides "do", "when" and "on".
absl::Status read_details(const Json& json, const std::string& pointer, Fault& fault) {
  absl::Status status;
  switch (fault.action) {
    case FaultAction::kKill:
      status = check_keys(json, pointer, {"do", "when", "on", "signal"});
      return status.ok() ? read_signal(json, pointer, fault) : status;
    case FaultAction::kExit:
      status = check_keys(json, pointer, {"do", "when", "on", "code"});
      return status.ok() ? read_exit_code(json, pointer, fault) : status;
    case FaultAction::kSlow:
      status = check_keys(json, pointer, {"do", "when", "on", "factor", "for"});
      return status.ok() ? read_factor(json, pointer, fault) : status;
    case FaultAction::kPartition:
      status = check_keys(json, pointer, {"do", "when", "on", "for", "direction"});
      return status.ok() ? read_link_fault(json, pointer, fault) : status;
    case FaultAction::kDelay:
      status = check_keys(json, pointer, {"do", "when", "on", "by", "for"});
      return status.ok() ? read_link_fault(json, pointer, fault) : status;
    case FaultAction::kStop: return check_keys(json, pointer, {"do", "when", "on", "for"});
    case FaultAction::kKillAgent:
    case FaultAction::kPreempt: break;
  }
  return check_keys(json, pointer, {"do", "when", "on"});
}

absl::StatusOr<Fault> read_fault(const Json& json, const std::string& pointer,
                                 std::uint32_t index) {
  if (!json.is_object()) return wrong(pointer, "must be an object");
  Fault fault;
  fault.index = index;
  if (absl::Status status = read_action(json, pointer, fault); !status.ok()) return status;
  absl::Status status = read_details(json, pointer, fault);
  if (!status.ok()) return status;
  if (status = read_trigger(json, pointer, fault.when); !status.ok()) return status;
  if (status = read_target(json, pointer, fault); !status.ok()) return status;
  if (status = read_duration(json, pointer, "for", fault.lasts); !status.ok()) return status;
  fault.text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return fault;
}

}  // namespace

absl::StatusOr<FaultPlan> parse_fault_plan(const std::string& json) {
  const std::string mistake = json_mistake(json);
  if (!mistake.empty()) return absl::InvalidArgumentError(mistake);
  const Json document = Json::parse(json);
  FaultPlan plan;
  const Json* faults = &document;
  std::string pointer;
  if (document.is_object()) {
    absl::Status status = check_keys(document, "", {"seed", "faults"});
    if (!status.ok()) return status;
    std::optional<std::uint64_t> seed;
    if (status = read_count(document, "", "seed", seed); !status.ok()) return status;
    plan.seed = seed.value_or(0);
    if (!document.contains("faults")) return wrong("", "needs \"faults\": a list");
    faults = &document["faults"];
    pointer = "/faults";
  }
  if (!faults->is_array()) return wrong(pointer, "must be a list of faults");
  if (faults->empty()) return wrong(pointer, "names no fault");
  if (faults->size() > kMostFaults) {
    return wrong(pointer, cat("has more than ", kMostFaults, " faults"));
  }
  std::uint32_t index = 0;
  for (const Json& entry : *faults) {
    absl::StatusOr<Fault> fault = read_fault(entry, cat(pointer, "/", index), index);
    if (!fault.ok()) return fault.status();
    plan.faults.push_back(*std::move(fault));
    ++index;
  }
  return plan;
}

absl::StatusOr<FaultPlan> read_fault_plan(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return absl::InvalidArgumentError("is empty");
  if (text[first] == '{' || text[first] == '[') return parse_fault_plan(text);
  const absl::StatusOr<std::string> content = transport::read_text_file(text, kMostBytes);
  if (!content.ok()) {
    return absl::InvalidArgumentError(cat(text, ": ", content.status().message()));
  }
  absl::StatusOr<FaultPlan> plan = parse_fault_plan(*content);
  if (plan.ok()) return plan;
  return absl::InvalidArgumentError(cat(text, ":", plan.status().message()));
}

absl::Status check_fault_plan(const FaultPlan& plan, const PlanBounds& bounds) {
  for (const Fault& fault : plan.faults) {
    const auto never = [&](std::string_view why) {
      return absl::InvalidArgumentError(cat("fault ", fault.index, " can never fire: ", why));
    };
    if (bounds.last_generation && fault.when.generation > *bounds.last_generation) {
      return never(cat("--max-restarts allows generations up to ", *bounds.last_generation,
                       ", not ", fault.when.generation));
    }
    if (bounds.max_nodes > 1) continue;
    if (fault.on.rank && *fault.on.rank >= bounds.slots) {
      return never(cat("there is no rank ", *fault.on.rank, " among ", bounds.slots));
    }
    if (fault.on.local_rank && *fault.on.local_rank >= bounds.slots) {
      return never(cat("there is no local rank ", *fault.on.local_rank, " among ", bounds.slots));
    }
    if (fault.on.node && *fault.on.node != bounds.node) {
      return never(cat("the only node is ", bounds.node, ", not ", *fault.on.node));
    }
  }
  return absl::OkStatus();
}

namespace {

// "SIGKILL to", "the end with 7 of", …
std::string what_is_done(const Fault& fault) {
  switch (fault.action) {
    case FaultAction::kKill: return cat(signal_name(fault.signal), " to ");
    case FaultAction::kStop: return "SIGSTOP to ";
    case FaultAction::kKillAgent: return "SIGKILL to ";
    case FaultAction::kPreempt: return "SIGTERM to ";
    case FaultAction::kExit: return cat("exit ", fault.exit_code, " of ");
    case FaultAction::kSlow: {
      const std::string factor = std::to_string(fault.factor);
      return cat("slowness, ", factor.substr(0, factor.find('.') + 2), " times, of ");
    }
    case FaultAction::kPartition:
      return cat(fault.direction == LinkDirection::kBoth ? "no traffic between the server and "
                 : fault.direction == LinkDirection::kIn ? "nothing from the server reaches "
                                                         : "nothing reaches the server from ");
    case FaultAction::kDelay:
      return cat("a delay of ", format_duration(fault.by), " between the server and ");
  }
  return "";
}

std::string who_is_hit(const Fault& fault) {
  const FaultTarget& on = fault.on;
  const char* const agent = hits_agent(fault.action) ? "the agent of " : "";
  if (on.rank) return cat(agent, "rank ", *on.rank);
  if (on.local_rank) return cat("local rank ", *on.local_rank, " of each node");
  if (on.random == RandomVictim::kRank) return cat(agent, "a random rank");
  const std::string node = on.node ? cat("node ", *on.node) : std::string("a random node");
  return cat(hits_agent(fault.action) ? agent : "every rank of ", node);
}

}  // namespace

std::string describe_fault(const Fault& fault) {
  const std::string when = fault.when.step ? cat("at step ", *fault.when.step)
                                           : cat(format_duration(*fault.when.after), " into");
  std::string text = cat(fault.index, ": ", what_is_done(fault), who_is_hit(fault), " ", when,
                         fault.when.step ? " of" : "", " generation ", fault.when.generation);
  if (!fault.lasts) return text;
  const bool continues = fault.action == FaultAction::kStop;
  return text + cat(continues ? ", SIGCONT after " : ", for ", format_duration(*fault.lasts));
}

}  // namespace muster::launcher
