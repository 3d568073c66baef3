// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/bin/command_line.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string_view>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "proto/base/nearest.h"
#include "worker_runtime/train/trainer.h"

namespace muster::runtime {
namespace {

void to_dashes(std::string& argument) {
  if (!argument.starts_with("--")) return;
  const std::size_t end = std::min(argument.find('='), argument.size());
  std::replace(argument.begin(), argument.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
}

// The first argument that is none of ours, and which of ours it may have been.
std::string unknown_argument(const CLI::App& app, std::vector<std::string> known) {
  const std::string first = app.remaining().front();
  const std::string name = first.substr(0, first.find('='));
  for (const CLI::Option* option : app.get_options())
    known.push_back(option->get_name());
  const std::string near = nearest(name, known);
  return near.empty() ? name : name + "; did you mean " + near + "?";
}

std::size_t columns(std::string_view text) {  // of UTF-8
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U;
  }));
}

// CLI11 does not break the lines of its help. What an option does goes on where it began.
std::string fitted(const std::string& help) {
  constexpr std::size_t kWidth = 80;
  constexpr std::size_t kDescriptions = 30;
  std::string out;
  for (std::size_t at = 0; at < help.size();) {
    const std::size_t end = std::min(help.find('\n', at), help.size());
    std::string line = help.substr(at, end - at);
    at = end + 1;
    const std::size_t indent =
        line.starts_with("  -") ? kDescriptions : line.find_first_not_of(' ');
    while (columns(line) > kWidth) {
      const std::size_t space = line.rfind(' ', kWidth);
      if (space == std::string::npos || space <= indent) break;
      out += line.substr(0, space) + "\n";
      line = std::string(indent, ' ') + line.substr(space + 1);
    }
    out += line + "\n";
  }
  return out;
}

}  // namespace

void say(const std::string& text) {
  const std::string line = "muster-train: " + text + "\n";
  (void)!::write(STDERR_FILENO, line.data(), line.size());
}

int parse_command_line(CLI::App& app, std::vector<std::string> arguments,
                       const std::vector<std::string>& also_known) {
  const std::string see = " (see " + app.get_name() + " --help)";
  for (std::string& argument : arguments)
    to_dashes(argument);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
  app.set_version_flag("--version", "muster-train " MUSTER_VERSION);
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    std::fputs(fitted(app.help()).c_str(), stdout);
    return 0;
  } catch (const CLI::CallForVersion&) {
    std::puts("muster-train " MUSTER_VERSION);
    return 0;
  } catch (const CLI::ExtrasError&) {
    say("unknown argument " + unknown_argument(app, also_known) + see);
    return kExitConfiguration;
  } catch (const CLI::ArgumentMismatch& error) {
    // "--config: 1 required TEXT missing": the flag is all that people need of it.
    const std::string text = error.what();
    say(text.substr(0, text.find(':')) + " needs a value" + see);
    return kExitConfiguration;
  } catch (const CLI::ParseError& error) {
    say(std::string(error.what()) + see);
    return kExitConfiguration;
  }
  return -1;
}

}  // namespace muster::runtime
