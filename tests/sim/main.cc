// SPDX-License-Identifier: Apache-2.0
//
// The simulator as a program: many seeds, or one of them with its trace. scripts/soak runs it on
// all cores.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>
#include <string>
#include <unistd.h>
#include <vector>

#include "tests/sim/minimise.h"
#include "tests/sim/world.h"

namespace muster::sim {
namespace {

constexpr const char* kUsage = R"(usage:
  sim --seeds N [--first-seed S]   runs them; a line for each that fails; exit 1 if one does
      [--hashes]                   and a line for each that says what tells two runs of it apart
  sim --bugs                       lists the bugs that can be planted
  sim --seed S [--minimise]        shows everything that happens under this seed, or under the
                                   smallest world found that fails in the same way
of one seed also:
  --lines N                        shows the last N lines only
  --agents N  --nnodes MIN:MAX  --plain (one worker a node, no node ranks)  --not-hosted
  --not-journaled  --faults-for D  --work D  --off KIND,KIND  another world than the seed's
  --draw N                         that world under other chances
  --plant BUG
)";

struct Command {
  std::uint64_t first = 1;
  std::optional<std::uint64_t> seeds;
  bool minimise = false;
  bool hashes = false;
  std::size_t lines = SIZE_MAX;
  SimOptions options;
};

[[noreturn]] void misused(const std::string& what) {
  std::cerr << "sim: " << what << "\n" << kUsage;
  std::exit(2);
}

std::uint64_t number(const std::string& flag, const std::string& text) {
  char* end = nullptr;
  errno = 0;
  const std::uint64_t value = std::strtoull(text.c_str(), &end, 10);
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || *end != '\0' || errno == ERANGE)
    misused(flag + " needs a number, not \"" + text + "\"");
  return value;
}

Duration duration(const std::string& flag, const std::string& text) {
  const std::optional<Duration> value = parse_duration(text);
  if (!value || *value == Duration{0}) misused(flag + " needs a duration, not \"" + text + "\"");
  return *value;
}

void switch_off(SimOptions& options, std::string list) {
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    const std::string name = list.substr(0, comma);
    list = comma == std::string::npos ? "" : list.substr(comma + 1);
    const auto knob = std::find_if(knobs().begin(), knobs().end(),
                                   [&](const Knob& known) { return name == known.name; });
    if (knob == knobs().end()) misused("--off knows no \"" + name + "\"");
    options.*knob->value = 0;
  }
}

void set_nodes(SimOptions& options, const std::string& text) {
  const std::size_t colon = text.find(':');
  options.min_nodes = static_cast<std::uint32_t>(number("--nnodes", text.substr(0, colon)));
  options.max_nodes = static_cast<std::uint32_t>(
      number("--nnodes", colon == std::string::npos ? text : text.substr(colon + 1)));
  if (options.min_nodes == 0 || options.min_nodes > options.max_nodes) {
    misused("--nnodes needs 1 <= MIN <= MAX");
  }
}

bool apply_switch(const std::string& flag, Command& command) {
  SimOptions& options = command.options;
  if (flag == "--minimise") {
    command.minimise = true;
  } else if (flag == "--hashes") {
    command.hashes = true;
  } else if (flag == "--plain") {
    options.slots = 1;
    options.mixed_slots = false;
    options.node_ranks = NodeRanks::kNone;
  } else if (flag == "--not-hosted") {
    options.hosted = false;
  } else if (flag == "--not-journaled") {
    options.journaled = false;
  } else {
    return false;
  }
  return true;
}

void apply_value(const std::string& flag, const std::string& value, Command& command) {
  SimOptions& options = command.options;
  if (flag == "--seeds") {
    command.seeds = number(flag, value);
  } else if (flag == "--first-seed") {
    command.first = number(flag, value);
  } else if (flag == "--seed") {
    // Read already: the other flags change its world.
  } else if (flag == "--lines") {
    command.lines = number(flag, value);
  } else if (flag == "--agents") {
    options.agents = static_cast<std::uint32_t>(number(flag, value));
    if (options.agents == 0) misused("--agents needs a number above 0");
  } else if (flag == "--nnodes") {
    set_nodes(options, value);
  } else if (flag == "--draw") {
    options.draw = number(flag, value);
  } else if (flag == "--faults-for") {
    options.fault_phase = duration(flag, value);
  } else if (flag == "--work") {
    options.longest_work = duration(flag, value);
  } else if (flag == "--plant") {
    if (find_bug(value) == nullptr) misused("--plant knows no \"" + value + "\" (sim --bugs)");
    options.planted = value;
  } else if (flag == "--off") {
    switch_off(options, value);
  } else {
    misused("unknown argument " + flag);
  }
}

Command parse(const std::vector<std::string>& arguments) {
  Command command;
  bool one = false;
  std::string of_one;  // a flag that only one seed takes
  for (std::size_t i = 0; i + 1 < arguments.size(); ++i) {
    if (arguments[i] != "--seed") continue;
    one = true;
    command.options = SimOptions::from_seed(number("--seed", arguments[i + 1]));
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& flag = arguments[i];
    if (flag != "--seeds" && flag != "--first-seed" && flag != "--hashes") of_one = flag;
    if (apply_switch(flag, command)) continue;
    if (i + 1 == arguments.size()) misused(flag + " needs a value, or is unknown");
    apply_value(flag, arguments[++i], command);
  }
  if (one == command.seeds.has_value()) misused("give either --seeds or --seed");
  if (command.seeds && !of_one.empty()) misused(of_one + " goes with --seed");
  if (command.seeds && command.first + *command.seeds < command.first) {
    misused("--first-seed: so many seeds do not follow it");
  }
  return command;
}

// A broken CHECK aborts: the seed must be known all the same.
std::uint64_t running_seed = 0;

void name_seed(int signal) {
  char line[64] = "FAILED ";
  std::size_t length = std::strlen(line);
  char digits[24];
  std::size_t count = 0;
  for (std::uint64_t rest = running_seed; rest > 0 || count == 0; rest /= 10)
    digits[count++] = static_cast<char>('0' + rest % 10);
  while (count > 0)
    line[length++] = digits[--count];
  for (const char* tail = " the machine aborted\n"; *tail != '\0'; ++tail)
    line[length++] = *tail;
  static_cast<void>(!write(1, line, length));
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// All that happened and all that was noticed: equal before and after a change that is only to make
// the simulator faster.
void tell_hash(const World& world) {
  std::uint64_t noticed = 0;
  for (const auto& [what, count] : world.checks.tally)
    noticed = hash_text(what, noticed ^ count);
  std::cout << "seed " << world.options.seed << ": " << world.steps() << " steps, " << std::hex
            << world.hash() << ", " << noticed << std::dec << "\n";
}

int run_many(std::uint64_t first, std::uint64_t seeds, bool hashes) {
  for (const int signal : {SIGABRT, SIGSEGV, SIGFPE, SIGBUS, SIGILL})
    std::signal(signal, name_seed);
  bool failed = false;
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    running_seed = seed;
    World world(SimOptions::from_seed(seed), hashes ? Notes::kHash : Notes::kNone);
    world.run();
    if (hashes) tell_hash(world);
    if (!world.failure()) continue;
    failed = true;
    std::cout << "FAILED " << seed << " " << *world.failure() << std::endl;
  }
  return failed ? 1 : 0;
}

int show(const Command& command) {
  SimOptions options = command.options;
  if (command.minimise) options = minimise(options);
  World world(options, Notes::kTrace);
  world.run();
  const std::vector<std::string>& trace = world.trace();
  const std::size_t first = trace.size() > command.lines ? trace.size() - command.lines : 0;
  for (std::size_t i = first; i < trace.size(); ++i)
    std::cout << trace[i] << "\n";
  std::cout << options.text() << "\n" << world.failure().value_or("nothing is wrong") << "\n";
  if (command.minimise) std::cout << "the same again: sim " << arguments(options) << "\n";
  return world.failure() ? 1 : 0;
}

}  // namespace
}  // namespace muster::sim

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && (arguments[0] == "--help" || arguments[0] == "-h")) {
    std::cout << muster::sim::kUsage;
    return 0;
  }
  if (arguments.size() == 1 && arguments[0] == "--bugs") {
    for (const muster::sim::Bug& bug : muster::sim::bugs())
      std::cout << bug.name << " (" << bug.breaks << ")\n";
    return 0;
  }
  const muster::sim::Command command = muster::sim::parse(arguments);
  return command.seeds ? muster::sim::run_many(command.first, *command.seeds, command.hashes)
                       : muster::sim::show(command);
}
