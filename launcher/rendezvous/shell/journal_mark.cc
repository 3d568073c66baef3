// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/shell/journal_mark.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include "proto/base/rng.h"

namespace muster::rendezvous {
namespace {

constexpr std::size_t kCountDigits = 20;
constexpr std::size_t kBootBytes = 36;
constexpr std::size_t kSumDigits = 16;
constexpr std::string_view kOpen = "open  ";
constexpr std::string_view kClosed = "closed";
constexpr std::size_t kStateAt = kCountDigits + 1 + kBootBytes + 1;
constexpr std::size_t kSumAt = kStateAt + kOpen.size() + 1;
constexpr std::size_t kBytes = kSumAt + kSumDigits + 1;

absl::Status failed(const std::string& journal) {
  return absl::UnavailableError(mark_path(journal) + ": " + std::strerror(errno));
}

// "the last 3 of its 40 writes are missing"
std::string missing(std::int64_t lost, std::int64_t all) {
  const std::string of_all = " of its " + std::to_string(all) + " writes";
  if (all == 1) return "its only write is missing";
  if (lost == all) return "all" + of_all + " are missing";
  if (lost == 1) return "the last" + of_all + " is missing";
  return "the last " + std::to_string(lost) + of_all + " are missing";
}

Verdict judge_without(const std::string& journal, bool there, std::optional<std::int64_t> commits) {
  const std::string name = std::filesystem::path(mark_path(journal)).filename();
  const std::string state = there ? " cannot be read" : " is missing";
  // No server of ours leaves an empty database without a mark: the writes are elsewhere.
  if (commits && *commits == 0) return {"it is empty, and " + name + state, ""};
  return {"",
          journal + ": " + name + state + ": nobody can tell whether its last writes are there"};
}

}  // namespace

// ---------------------------------------------------------------- the text

std::string text_of(const Mark& mark) {
  std::array<char, kCountDigits + 1> count{};
  std::snprintf(count.data(), count.size(), "%020" PRId64, mark.commits);
  std::string text = count.data();
  std::string boot = mark.boot;
  boot.resize(kBootBytes, ' ');
  text.append(" ").append(boot).append(" ").append(mark.closed ? kClosed : kOpen).append(" ");
  std::array<char, kSumDigits + 1> sum{};
  std::snprintf(sum.data(), sum.size(), "%016" PRIx64, hash_text(text));
  return text.append(sum.data()).append("\n");
}

std::optional<Mark> mark_in(std::string_view text) {
  if (text.size() != kBytes) return std::nullopt;
  Mark mark;
  const char* digits_end = text.data() + kCountDigits;
  if (std::from_chars(text.data(), digits_end, mark.commits).ptr != digits_end) return std::nullopt;
  mark.boot = text.substr(kCountDigits + 1, kBootBytes);
  mark.boot.erase(mark.boot.find_last_not_of(' ') + 1);
  mark.closed = text.substr(kStateAt, kClosed.size()) == kClosed;
  if (mark.commits < 0 || text_of(mark) != text) return std::nullopt;
  return mark;
}

std::string mark_path(const std::string& journal) {
  return journal + "-mark";
}

std::string this_boot() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string line;
  std::getline(file, line);
  return line.substr(0, kBootBytes);
}

// ---------------------------------------------------------------- reading

FoundMark find_mark(const std::string& journal) {
  const std::string path = mark_path(journal);
  FoundMark found;
  std::error_code error;
  const auto type = std::filesystem::symlink_status(path, error).type();
  found.there = type != std::filesystem::file_type::not_found;
  if (!std::filesystem::is_regular_file(path, error)) return found;
  std::ifstream file(path, std::ios::binary);
  std::string text(kBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  found.mark = mark_in(std::string_view(text).substr(0, static_cast<std::size_t>(file.gcount())));
  return found;
}

Verdict judge(const std::string& journal, const FoundMark& found,
              std::optional<std::int64_t> commits, const std::string& boot) {
  if (!found.mark) return judge_without(journal, found.there, commits);
  const Mark& mark = *found.mark;
  const std::int64_t lost = mark.commits - commits.value_or(0);
  // What was closed in order is on the disk, whatever became of the host.
  if (mark.closed || mark.boot == boot) {
    if (lost > 0) {
      const std::string log = std::filesystem::path(journal + "-wal").filename();
      return {missing(lost, mark.commits) + ": " + log + " is cut, altered or gone", ""};
    }
    if (lost >= -1) return {};  // killed between a commit and its mark
    const std::string name = std::filesystem::path(mark_path(journal)).filename();
    return {"", journal + ": " + name +
                    " is older than it: nobody can tell whether its last writes are there"};
  }
  return {"", journal + ": " +
                  (lost > 0 ? missing(lost, mark.commits) : "its last writes may be missing") +
                  ": this host went down while a server ran, or the files are another host's; " +
                  "agents that still run bring back what they know"};
}

// ---------------------------------------------------------------- writing

absl::StatusOr<std::unique_ptr<MarkWriter>> MarkWriter::open(const std::string& journal,
                                                             std::int64_t commits) {
  std::unique_ptr<MarkWriter> writer(new MarkWriter(journal));
  writer->mark_ = {commits, this_boot(), false};
  const int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
  writer->file_ = ::open(mark_path(journal).c_str(), flags, 0600);
  const bool good = writer->file_ >= 0 && writer->put() && ftruncate(writer->file_, kBytes) == 0 &&
                    fsync(writer->file_) == 0;
  if (!good) return failed(journal);
  return writer;
}

MarkWriter::~MarkWriter() {
  if (file_ < 0) return;
  std::error_code error;
  mark_.closed = !std::filesystem::exists(journal_ + "-wal", error) && !error;
  if (mark_.closed) put();
  close(file_);
}

absl::Status MarkWriter::write(std::int64_t commits) {
  mark_.commits = commits;
  return put() ? absl::OkStatus() : failed(journal_);
}

bool MarkWriter::put() {
  const std::string text = text_of(mark_);
  errno = 0;
  const ssize_t written = pwrite(file_, text.data(), text.size(), 0);
  if (written >= 0 && written != static_cast<ssize_t>(text.size())) errno = ENOSPC;
  return written == static_cast<ssize_t>(text.size());
}

}  // namespace muster::rendezvous
