// SPDX-License-Identifier: Apache-2.0
//
// gpu-check: whether the CUDA backend is right on this machine's GPU, and how fast it is.
//
//   gpu-check [--fakes] [--json FILE] [--sections A,B] [--seconds N] [--torch COMMAND]
//
// Each section is a process of its own: a kernel that takes the device's context with it, or
// hangs, costs its section a case and the others nothing. Exit code 0: all checks hold; 1: some do
// not; 2: usage; 3: those that were made hold, but not all were made (--seconds).
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <unistd.h>
#include <vector>

#include "tests/gpu/context.h"
#include "tests/gpu/process.h"
#include "tests/gpu/rank.h"

namespace muster::runtime::cuda::gpu_check {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  bool on_fakes = false;
  std::string json = "gpu-check.json";
  std::string only;  // ",kernels,speed,"
  std::string torch;
  int seconds = 420;
  // Of a child.
  std::string section;
  std::string after;
  std::string folder;
  int rows = -1;
};

// A section may end its process so often before it is left.
constexpr int kRestarts = 20;
// On fakes a section may take so much longer: hosts compute slowly, and may be busy.
constexpr int kPatience = 4;

const char* value_of(int argc, char** argv, const char* name) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], name) == 0) return argv[i + 1];
  }
  return nullptr;
}

Options read_options(int argc, char** argv) {
  Options options;
  options.on_fakes = std::any_of(argv + 1, argv + argc, [](const char* argument) {
    return std::strcmp(argument, "--fakes") == 0;
  });
  const auto text = [&](const char* name, std::string& to) {
    if (const char* value = value_of(argc, argv, name)) to = value;
  };
  const auto number = [&](const char* name, int& to) {
    if (const char* value = value_of(argc, argv, name)) to = std::atoi(value);
  };
  text("--json", options.json);
  text("--sections", options.only);
  text("--torch", options.torch);
  text("--section", options.section);
  text("--after", options.after);
  text("--folder", options.folder);
  number("--seconds", options.seconds);
  number("--rows", options.rows);
  if (!options.only.empty()) options.only = "," + options.only + ",";
  return options;
}

std::string own_path() {
  std::array<char, 4096> path{};
  const ssize_t size = ::readlink("/proc/self/exe", path.data(), path.size() - 1);
  return size > 0 ? std::string(path.data(), static_cast<std::size_t>(size)) : "";
}

// ---------------------------------------------------------------- a section, as a child

int run_section(const Options& options) {
  Report report(options.section, ::fdopen(options.rows, "w"));
  Context context;
  context.on_fakes = options.on_fakes;
  if (options.on_fakes) context.libraries = fake_libraries();
  context.report = &report;
  context.program = own_path();
  context.folder = options.folder;
  context.after = options.after;
  context.torch = options.torch;
  for (const Section& section : sections()) {
    if (section.name != options.section) continue;
    const absl::Status status = section.run(context);
    if (!status.ok()) report.check("the section itself", false, status.ToString());
    return 0;
  }
  return 2;
}

// ---------------------------------------------------------------- all of them

class Program {
 public:
  explicit Program(const Options& options) : options_(options), began_(Clock::now()) {}

  int run() {
    if (!known_sections() || !write()) return 2;
    for (const Section& section : sections()) {
      if (!wanted(section)) continue;
      const Clock::time_point start = Clock::now();
      if (start >= end_of_all()) {
        time_is_over(section, "left out");
      } else if (run(section)) {
        finished_.push_back(section.name);
      }
      const bool finished = !finished_.empty() && finished_.back() == section.name;
      if (section.checks && !finished)
        unchecked_ += (unchecked_.empty() ? "" : ", ") + section.name;
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      std::fprintf(stderr, "gpu-check: %s took %.1f s\n", section.name.c_str(), seconds);
      write();
    }
    print_table(rows_, stdout);
    if (!unchecked_.empty()) std::printf("not all of it was checked: %s\n", unchecked_.c_str());
    const bool fails = std::any_of(rows_.begin(), rows_.end(),
                                   [](const Row& row) { return row.kind == Row::Kind::kFail; });
    if (fails || !written_) return 1;
    return unchecked_.empty() ? 0 : 3;
  }

 private:
  // Says what is not known.
  bool known_sections() const {
    std::string names;
    std::string rest = options_.only;
    for (const Section& section : sections()) {
      names += " " + section.name;
      const std::size_t at = rest.find("," + section.name + ",");
      if (at == std::string::npos) continue;
      rest.erase(at, section.name.size() + 1);
      if (!options_.on_fakes || section.on_fakes) continue;
      std::fprintf(stderr, "gpu-check: --sections: %s needs a device\n", section.name.c_str());
      return false;
    }
    if (rest.empty() || rest == ",") return true;
    std::fprintf(stderr, "gpu-check: --sections: what is \"%s\"? There are%s\n",
                 rest.substr(1, rest.size() - 2).c_str(), names.c_str());
    return false;
  }
  bool write() {
    const std::string error = write_json(options_.json, rows_, finished_, options_.on_fakes);
    if (!error.empty()) std::fprintf(stderr, "gpu-check: --json: %s\n", error.c_str());
    written_ = error.empty();
    return written_;
  }
  bool wanted(const Section& section) const {
    if (options_.on_fakes && !section.on_fakes) return false;
    return options_.only.empty() ||
           options_.only.find("," + section.name + ",") != std::string::npos;
  }
  void add(Row row) { rows_.push_back(std::move(row)); }
  void time_is_over(const Section& section, const std::string& what) {
    add({.kind = Row::Kind::kFact,
         .section = section.name,
         .what = what,
         .note = "the time is over (--seconds)",
         .unit = {}});
  }
  void fail(const Section& section, const std::string& what, const std::string& note) {
    std::fprintf(stderr, "gpu-check: %s: %s: %s\n", section.name.c_str(), what.c_str(),
                 note.c_str());
    add({.kind = Row::Kind::kFail,
         .section = section.name,
         .what = what,
         .note = note,
         .unit = {}});
  }

  // Again and again, each time behind what ended it. Whether it came to its end.
  bool run(const Section& section) {
    const Clock::time_point until = std::min(Clock::now() + seconds(section.seconds), end_of_all());
    std::string after;
    for (int start = 0; start < kRestarts; ++start) {
      const Ended ended = run_once(section, after, until);
      if (ended.well) return true;
      if (ended.at.empty() || ended.at == after || Clock::now() > until) return false;
      after = ended.at;
    }
    return false;
  }

  Clock::time_point end_of_all() const { return began_ + seconds(options_.seconds); }

  std::chrono::seconds seconds(int count) const {
    return std::chrono::seconds(options_.on_fakes ? kPatience * count : count);
  }

  static std::string fresh_folder() {
    std::string folder =
        (std::filesystem::temp_directory_path() / ("gpu-check." + std::to_string(::getpid())))
            .string();
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    return folder;
  }

  struct Ended {
    bool well = false;
    std::string at;  // what it was at when it ended before its time; empty: it never said
  };
  Ended run_once(const Section& section, const std::string& after, Clock::time_point until) {
    const std::string folder = fresh_folder();
    const Pipe rows = make_pipe();
    std::vector<std::string> command{own_path(), "--section", section.name};
    command.insert(command.end(), {"--rows", std::to_string(rows.write), "--folder", folder});
    command.insert(command.end(), {"--torch", options_.torch, "--after", after});
    if (options_.on_fakes) command.emplace_back("--fakes");
    const Child child = start_child(command, {rows.write}, true);
    ::close(rows.write);
    std::string at;
    bool told = false;  // why it ends
    const auto take = [&](const std::string& line) {
      const std::optional<Row> row = read_row_line(line);
      if (!row) return;
      if (row->kind == Row::Kind::kAt) {
        at = row->what;
      } else if (row->kind == Row::Kind::kFail) {
        fail(section, row->what, row->note);
        told = row->what == at;
      } else {
        rows_.push_back(*row);
      }
    };
    const bool in_time = read_lines(rows.read, until, seconds(section.quiet), take);
    ::close(rows.read);
    if (!in_time) ::kill(-child.pid, SIGKILL);
    const ChildEnd end = wait_for(child);
    std::filesystem::remove_all(folder);
    if (in_time && end.code == 0) return {.well = true, .at = {}};
    if (!in_time && Clock::now() >= end_of_all()) {
      time_is_over(section, "cut short" + (at.empty() ? "" : " at " + at));
      return {};
    }
    // Slowness is no verdict.
    if (!in_time && !section.checks) {
      add({.kind = Row::Kind::kFact,
           .section = section.name,
           .what = "cut short" + (at.empty() ? "" : " at " + at),
           .note = "took too long",
           .unit = {}});
      return {.well = false, .at = at};
    }
    if (!told) {
      fail(section, at.empty() ? "the section itself" : at,
           in_time ? "ended the process: " + end.text() : "took too long, or hangs");
    }
    return {.well = false, .at = at};
  }

  Options options_;
  Clock::time_point began_;
  std::vector<Row> rows_;
  std::vector<std::string> finished_;
  std::string unchecked_;
  bool written_ = true;
};

}  // namespace
}  // namespace muster::runtime::cuda::gpu_check

int main(int argc, char** argv) {
  using namespace muster::runtime::cuda::gpu_check;  // NOLINT(google-build-using-namespace)
  if (argc > 1 && std::strcmp(argv[1], "--rank") == 0) return run_rank(argc, argv);
  const Options options = read_options(argc, argv);
  return options.section.empty() ? Program(options).run() : run_section(options);
}
