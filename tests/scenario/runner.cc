// SPDX-License-Identifier: Apache-2.0
#include "tests/scenario/runner.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

namespace muster::scenario {

namespace {

constexpr std::string_view kIndent = "    ";
constexpr std::string_view kNothing = "(nothing)";
// A machine that asks for more ticks than this on the way to one event asks for ever.
constexpr int kTicksPerEvent = 100000;

std::map<std::string, AdapterFactory>& adapters() {
  static std::map<std::string, AdapterFactory> registry;
  return registry;
}

struct Block {
  int line = 0;  // of the event
  std::string event;
  int golden_line = 0;  // of the first transcript line
  Transcript golden;
};

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  std::string line;
  std::istringstream stream{std::string(text)};
  while (std::getline(stream, line)) {
    while (!line.empty() && (line.back() == ' ' || line.back() == '\r'))
      line.pop_back();
    lines.push_back(line);
  }
  return lines;
}

bool is_transcript(const std::string& line) {
  return line.starts_with(' ') || line.starts_with('\t');
}
bool is_event(const std::string& line) {
  return !line.empty() && !is_transcript(line) && !line.starts_with('#');
}

std::string without_indent(const std::string& line) {
  return line.substr(line.find_first_not_of(" \t"));
}

std::string one_line(const std::string& text) {
  std::string line;
  for (const char c : text)
    line += c == '\n' ? std::string("\\n") : std::string(1, c);
  while (line.ends_with(' '))
    line.pop_back();
  return line;
}

// Plays the events of one file against one adapter, with one clock.
class Player {
 public:
  Player(Adapter& adapter, Result& result) : adapter_(adapter), result_(result) {}

  Transcript play(const std::string& event, int line) {
    ++result_.events;
    Transcript out;
    std::string_view rest = event;
    if (rest.starts_with('+')) {
      const std::size_t blank = std::min(rest.find(' '), rest.size());
      const std::optional<Duration> step = parse_duration(rest.substr(1, blank - 1));
      if (!step) {
        result_.problems.push_back({line, "not a duration: " + std::string(rest.substr(0, blank))});
        return out;
      }
      rest.remove_prefix(std::min(rest.find_first_not_of(' ', blank), rest.size()));
      advance(*step, rest.empty(), line, out);
    }
    if (!rest.empty()) carry_out(rest, line, out);
    if (out.empty()) out.emplace_back(kNothing);
    for (std::string& produced : out)
      produced = one_line(produced);
    return out;
  }

 private:
  // Ticks on the way; one that falls on the very end comes after the event, if there is one:
  // events received are handled before deadlines.
  void advance(Duration step, bool time_only, int line, Transcript& out) {
    const Instant end = now_ + step;
    for (int ticks = 0;; ++ticks) {
      const std::optional<Instant> next = adapter_.next_deadline();
      if (!next || *next > end || (*next == end && !time_only)) break;
      if (ticks == kTicksPerEvent) {
        result_.problems.push_back({line, "the machine asks for ticks without end"});
        break;
      }
      now_ = std::max(now_, *next);
      for (const std::string& text : adapter_.tick(now_)) {
        out.push_back("[" + format_duration(now_.since_origin) + "] " + text);
      }
    }
    now_ = end;
  }

  void carry_out(std::string_view text, int line, Transcript& out) {
    Command command(text);
    if (!command.error() || command.name() != "") {
      for (std::string& produced : adapter_.run(command, now_))
        out.push_back(std::move(produced));
    }
    if (const std::optional<std::string> error = command.error()) {
      result_.problems.push_back({line, *error});
    }
  }

  Adapter& adapter_;
  Result& result_;
  Instant now_{};
};

void compare(const Block& block, const Transcript& actual, Result& result) {
  const std::size_t common = std::min(block.golden.size(), actual.size());
  for (std::size_t i = 0; i < std::max(block.golden.size(), actual.size()); ++i) {
    if (i < common && block.golden[i] == actual[i]) continue;
    const std::string expected = i < block.golden.size() ? block.golden[i] : "(end of transcript)";
    const std::string found = i < actual.size() ? actual[i] : "(end of transcript)";
    const int line = i < block.golden.size() ? block.golden_line + static_cast<int>(i)
                                             : block.line + static_cast<int>(block.golden.size());
    result.problems.push_back({line, "after \"" + block.event + "\"\n    expected: " + expected +
                                         "\n    actual:   " + found});
    return;  // what follows a first difference is noise
  }
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Plays one file and reports; true when it agrees (or was rewritten without other problems).
bool play_file(const std::filesystem::path& path, bool rewrite) {
  const std::string name = path.filename().string();
  const auto factory = adapters().find(name.substr(0, name.find('_')));
  if (factory == adapters().end()) {
    std::cout << path.string() << ":1: no adapter plays files of this name\n";
    return false;
  }
  const std::string text = read_file(path);
  const std::unique_ptr<Adapter> adapter = factory->second();
  Result result = play(text, *adapter);
  if (rewrite && result.rewritten != text) {
    std::ofstream(path, std::ios::binary) << result.rewritten;
    // Differences are now written; what remains is what no rewriting cures.
    const std::unique_ptr<Adapter> again = factory->second();
    result = play(result.rewritten, *again);
    std::cout << "rewritten: " << path.string() << "\n";
  }
  for (const Problem& problem : result.problems) {
    std::cout << path.string() << ":" << problem.line << ": " << problem.what << "\n";
  }
  std::cout << (result.problems.empty() ? "ok    " : "FAILED ") << name << ", " << result.events
            << " events\n";
  return result.problems.empty();
}

}  // namespace

bool register_adapter(const std::string& prefix, AdapterFactory factory) {
  return adapters().emplace(prefix, std::move(factory)).second;
}

Result play(std::string_view text, Adapter& adapter) {
  Result result;
  Player player(adapter, result);
  const std::vector<std::string> lines = lines_of(text);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const int number = static_cast<int>(i) + 1;
    if (is_transcript(lines[i])) {
      result.problems.push_back({number, "a transcript line without an event above it"});
      continue;
    }
    result.rewritten += lines[i] + "\n";
    if (!is_event(lines[i])) continue;
    Block block{number, lines[i], number + 1, {}};
    while (i + 1 < lines.size() && is_transcript(lines[i + 1])) {
      block.golden.push_back(without_indent(lines[++i]));
    }
    const Transcript actual = player.play(block.event, block.line);
    for (const std::string& line : actual)
      result.rewritten += std::string(kIndent) + line + "\n";
    compare(block, actual, result);
  }
  if (result.events == 0) result.problems.push_back({1, "no event in this file"});
  return result;
}

int play_folder(const std::string& folder, const std::string& filter, bool rewrite) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() == ".txt" && name.find(filter) != std::string::npos) {
      files.push_back(entry.path());
    }
  }
  if (error) std::cout << folder << ": " << error.message() << "\n";
  if (files.empty()) {
    std::cout << "no scenario in " << folder << "\n";
    return 1;
  }
  std::sort(files.begin(), files.end());
  std::size_t failed = 0;
  for (const auto& file : files) {
    if (!play_file(file, rewrite)) ++failed;
  }
  std::cout << files.size() << " scenarios, " << failed << " failed\n";
  return failed == 0 ? 0 : 1;
}

}  // namespace muster::scenario
