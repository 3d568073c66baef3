// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/option_help.h"

#include <optional>

#include <nlohmann/json.hpp>

#include "launcher/commands/option_table.h"
#include "launcher/commands/text.h"

namespace muster::launcher {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kUsage =
    "Usage: muster run [options] [--] PROGRAM [arguments...]\n"
    "\n"
    "Runs PROGRAM once for every rank of a job: this node's part of it, and the\n"
    "rendezvous server too where this node hosts it. Options that torchrun has mean\n"
    "what they mean there.\n"
    "\n"
    "Examples:\n"
    "  muster run --standalone --nproc-per-node 4 train.py --epochs 3\n"
    "      four workers on this machine\n"
    "  muster run --nnodes 2 --rdzv-endpoint node0:29400 --nproc-per-node 8 \\\n"
    "      --max-restarts 3 train.py\n"
    "      the same line on both nodes; node0 hosts the server\n"
    "  muster run --standalone --nproc-per-node 2 --max-restarts 1 \\\n"
    "      --chaos '[{\"do\":\"kill\",\"when\":{\"after\":\"2s\"},\"on\":{\"rank\":1}}]' -- "
    "./train\n"
    "      kill rank 1 after two seconds and see the job recover\n"
    "\n"
    "Flags may be written with dashes or underscores, `--flag value` or\n"
    "`--flag=value`. Every one is also read from MUSTER_<NAME>, and torchrun's from\n"
    "PET_<NAME> (the flag wins, then MUSTER_, then PET_). Durations are 500ms, 30s,\n"
    "5m, 1h or plain seconds.\n";

constexpr std::string_view kEnd =
    "\nOther\n"
    "  --print-config\n"
    "        print every value with where it came from, as JSON, and exit\n"
    "  -h, --help\n"
    "        this text\n"
    "\n"
    "Exit codes: 0 the job succeeded; else the first failed worker's own (128+n for\n"
    "a signal, 137 out of memory, 124 hang, 1 node lost; with --exit-code flat: 1);\n"
    "2 usage; 70 internal error; 75 too few nodes in time; 76 server lost; 77 this\n"
    "node was put out; 78 no progress; 79 a fault of --chaos-strict never fired;\n"
    "126/127 program not executable / not found; 128+n stopped by a signal, 143 by\n"
    "`muster stop`.\n";

std::string describe_names(const OptionDef& option) {
  std::string names = "  ";
  if (option.letter != 0) names += cat("-", std::string(1, option.letter), ", ");
  names += cat("--", option.name);
  if (!option.metavar.empty()) names += cat(" ", option.metavar);
  if (!option.torchrun.empty() && option.torchrun != option.name) {
    names += cat("  (also --", option.torchrun, ")");
  }
  return names;
}

// The text in lines of at most `width` columns, each indented.
std::string wrap(std::string_view text, std::size_t width, std::string_view indent) {
  std::string result;
  std::size_t column = 0;
  std::size_t at = 0;
  while (at < text.size()) {
    std::size_t end = text.find(' ', at);
    if (end == std::string_view::npos) end = text.size();
    const std::string_view word = text.substr(at, end - at);
    if (column == 0 || column + 1 + word.size() > width) {
      result += cat(result.empty() ? "" : "\n", indent, word);
      column = indent.size() + word.size();
    } else {
      result += cat(" ", word);
      column += 1 + word.size();
    }
    at = end + 1;
  }
  return result + "\n";
}

// The value as the JSON type it has, so that a script can compare it.
Json typed(const OptionDef& option, const std::string& text) {
  if (option.kind == OptionKind::kSwitch) {
    return text == "1" || text == "true" || text == "yes" || text == "on";
  }
  if (text.empty()) return nullptr;
  if (option.kind == OptionKind::kCount) return std::stoull(text);
  if (option.kind == OptionKind::kDuration) {
    const std::optional<Duration> duration = parse_duration(text);
    return duration ? Json(format_duration(*duration)) : Json(text);
  }
  return text;
}

Json list_ports(const RunOptions& options) {
  Json ports = Json::array();
  if (options.endpoint) {
    ports.push_back({{"port", std::to_string(options.endpoint->port)},
                     {"on", options.endpoint->host},
                     {"for", "the rendezvous server, from every node"}});
  }
  const std::string range = options.master_port_low == options.master_port_high
                                ? std::to_string(options.master_port_low)
                                : cat(options.master_port_low, "-", options.master_port_high);
  ports.push_back({{"port", range},
                   {"on", options.max_nodes > 1 ? "every node" : "this node"},
                   {"for", "MASTER_PORT of the workers, on the node of rank 0"}});
  return ports;
}

}  // namespace

std::string run_help() {
  std::string text(kUsage);
  std::optional<OptionGroup> group;
  for (const OptionDef& option : option_table()) {
    if (option.standing != Standing::kHere) continue;
    if (group != option.group) {
      group = option.group;
      text += cat("\n", group_title(option.group), "\n");
    }
    std::string help(option.help);
    if (!option.fallback.empty() && option.kind != OptionKind::kSwitch) {
      help += cat(" [", option.fallback, "]");
    }
    help += cat(" (", muster_variable(option));
    const std::string pet = pet_variable(option);
    if (!pet.empty()) help += cat(", ", pet);
    help += ')';
    text += cat(describe_names(option), "\n", wrap(help, 80, "        "));
  }
  text += kEnd;
  return text;
}

std::string print_config(const CommandLine& line, const RunOptions& options, std::uint32_t slots,
                         const std::vector<std::string>& argv) {
  Json values = Json::object();
  for (std::size_t i = 0; i < option_table().size(); ++i) {
    const OptionDef& option = option_table()[i];
    if (option.standing != Standing::kHere) continue;
    const Setting& setting = line.settings[i];
    values[std::string(option.name)] = {{"value", typed(option, setting.text)},
                                        {"source", setting.source}};
  }
  Json derived = {{"min_nodes", options.min_nodes},
                  {"max_nodes", options.max_nodes},
                  {"workers_on_this_node", slots},
                  {"server", options.endpoint ? options.endpoint->text() : "this process"},
                  {"argv", argv},
                  {"ports", list_ports(options)}};
  const Json document = {{"schema", 1},
                         {"options", std::move(values)},
                         {"derived", std::move(derived)},
                         {"notes", line.notes}};
  // Arguments are bytes, not always UTF-8; a replacement character is better than a refusal.
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace muster::launcher
