// SPDX-License-Identifier: Apache-2.0
//
// `muster`: one name, one subcommand, one exit code.
#include <array>
#include <string>
#include <vector>

#include "launcher/commands/commands.h"
#include "launcher/commands/options.h"
#include "launcher/commands/shell_completion.h"
#include "launcher/commands/text.h"
#include "proto/base/nearest.h"
#include "proto/process/standard_descriptors.h"

namespace {

using muster::launcher::Words;

struct Command {
  const char* name;
  int (*run)(const Words& words);
};

constexpr std::array<Command, 8> kCommands{{{"run", muster::launcher::run_command},
                                            {"rendezvous", muster::launcher::rendezvous_command},
                                            {"status", muster::launcher::status_command},
                                            {"stop", muster::launcher::stop_command},
                                            {"scale", muster::launcher::scale_command},
                                            {"drain", muster::launcher::drain_command},
                                            {"restart", muster::launcher::restart_command},
                                            {"chaos", muster::launcher::chaos_command}}};

// Commands of the interface that a later version brings.
constexpr std::array<const char*, 8> kLater{"agent",  "launch", "logs",   "stacks",
                                            "cordon", "pause",  "resume", "doctor"};

constexpr std::string_view kHelp =
    "Usage: muster COMMAND [arguments...]\n"
    "\n"
    "Calls the ranks of a distributed training job together: starts them, gives them\n"
    "their ranks, restarts what fails, and leaves nothing behind.\n"
    "\n"
    "  run          this node's part of a job: muster run --standalone\n"
    "               --nproc-per-node 4 train.py\n"
    "  rendezvous   a server of its own for many jobs\n"
    "  status       live jobs: phase, nodes, ranks, progress\n"
    "  stop         end a job on all its nodes\n"
    "  scale        change how many nodes a job has\n"
    "  drain        take a node out of a job\n"
    "  restart      begin a new generation of a job\n"
    "  chaos        check a plan of faults for `muster run --chaos`\n"
    "  version      the version\n"
    "  completion   flags by the Tab key: source <(muster completion bash), or zsh\n"
    "  manual       the manual page of `muster run`: muster manual | man -l -\n"
    "\n"
    "`muster COMMAND --help` shows its flags and examples. To begin with:\n"
    "  muster run --standalone --nproc-per-node 2 -- sh -c 'echo rank $RANK'\n";

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Command& command : kCommands)
    names.emplace_back(command.name);
  names.insert(names.end(), {"version", "completion", "manual", "help"});
  return names;
}

int no_command(const std::string& word) {
  for (const char* later : kLater) {
    if (word == later) {
      return muster::launcher::refuse(muster::launcher::cat("'", word, "' is not in this version"));
    }
  }
  // What belongs after `run`: its flags, or a program.
  const bool program = word.find_first_of("./") != std::string::npos;
  if (word.starts_with("-") || program) {
    return muster::launcher::refuse(muster::launcher::cat("unknown command '", word,
                                                          "'; did you mean `muster run ", word,
                                                          program ? "`?" : " ...`?"));
  }
  const std::string near = muster::nearest(word, command_names());
  return muster::launcher::refuse(
      muster::launcher::cat("unknown command '", word, "'",
                            near.empty() ? "; `muster --help` lists them"
                                         : muster::launcher::cat("; did you mean ", near, "?")));
}

int print_all(std::string_view text) {
  return muster::launcher::print(text) ? 0 : 1;
}

int version_command(const Words& words) {
  if (!words.empty() && (words[0] == "--help" || words[0] == "-h")) {
    return muster::launcher::print("Usage: muster version\n\nPrints the version.\n") ? 0 : 1;
  }
  if (!words.empty()) return muster::launcher::refuse_surplus("version", words[0]);
  return muster::launcher::print("muster " MUSTER_VERSION "\n") ? 0 : 1;
}

int completion_command(const Words& words) {
  const std::string shell = words.empty() ? "" : words[0];
  if (words.size() > 1) return muster::launcher::refuse_surplus("completion", words[1]);
  if (shell == "bash") return print_all(muster::launcher::bash_completion(command_names()));
  if (shell == "zsh") return print_all(muster::launcher::zsh_completion(command_names()));
  constexpr std::string_view kUse =
      "Usage: muster completion bash|zsh\n"
      "\n"
      "Prints a script that completes muster's commands and the flags of `muster run`.\n"
      "For this shell: source <(muster completion bash). For all to come, in ~/.bashrc\n"
      "or ~/.zshrc.\n";
  if (shell == "--help" || shell == "-h") return print_all(kUse);
  return muster::launcher::refuse(shell.empty()
                                      ? "completion: for which shell, bash or zsh?"
                                      : muster::launcher::cat("completion: no script for '", shell,
                                                              "'; there are bash and zsh"));
}

int manual_command(const Words& words) {
  if (!words.empty() && (words[0] == "--help" || words[0] == "-h")) {
    return print_all("Usage: muster manual\n\nPrints muster-run(1): muster manual | man -l -\n");
  }
  if (!words.empty()) return muster::launcher::refuse_surplus("manual", words[0]);
  return print_all(muster::launcher::run_manual(MUSTER_VERSION));
}

int run_command(const std::string& name, const Words& words) {
  if (name == "completion") return completion_command(words);
  if (name == "manual") return manual_command(words);
  if (name == "version" || name == "--version") return version_command(words);
  for (const Command& command : kCommands) {
    if (name == command.name) return command.run(words);
  }
  return no_command(name);
}

[[gnu::constructor(muster::kFirstOfAll)]] void hold() {
  muster::hold_standard_descriptors();
}

}  // namespace

int main(int argc, char** argv) {
  const Words words(argv + (argc > 0 ? 1 : 0), argv + argc);
  if (words.empty()) {
    return muster::launcher::refuse("no command given; `muster --help` lists them");
  }
  const std::string& name = words[0];
  if (name == "--help" || name == "-h" || name == "help") {
    // `muster help run` is `muster run --help`.
    if (words.size() == 2) return run_command(words[1], {"--help"});
    if (words.size() > 2) return muster::launcher::refuse_surplus("", words[2]);
    return muster::launcher::print(kHelp) ? 0 : 1;
  }
  return run_command(name, Words(words.begin() + 1, words.end()));
}
