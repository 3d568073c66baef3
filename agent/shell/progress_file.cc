// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/progress_file.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "proto/base/progress_layout.h"

namespace muster::agent {

namespace {

using namespace muster::progress;

// The five words up to the checkpoint step, as the file has them.
constexpr std::size_t kWords = kCheckpointStepOffset / sizeof(std::uint64_t) + 1;
using Words = std::array<std::uint64_t, kWords>;
static_assert(kMagicOffset == 0);

std::uint64_t& word_at(Words& words, std::size_t offset) {
  return words.at(offset / sizeof(std::uint64_t));
}

bool put(int file, std::size_t offset, std::uint64_t word) {
  return ::pwrite(file, &word, sizeof word, static_cast<off_t>(offset)) ==
         static_cast<ssize_t>(sizeof word);
}

}  // namespace

absl::StatusOr<ProgressFile> ProgressFile::create(const std::string& path, std::uint64_t fault_word,
                                                  std::uint64_t fault_argument) {
  ProgressFile out;
  out.file_.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  out.has_word_ = fault_word != 0;
  // Written whole, not truncated to size: a full disk is an error here, not the worker's SIGBUS.
  std::array<std::uint64_t, kFileBytes / sizeof(std::uint64_t)> page{};
  page.at(kFaultWordOffset / sizeof(std::uint64_t)) = fault_word;
  page.at(kFaultArgumentOffset / sizeof(std::uint64_t)) = fault_argument;
  const bool ok = out.file_.valid() && ::pwrite(out.file_.get(), page.data(), kFileBytes, 0) ==
                                           static_cast<ssize_t>(kFileBytes);
  if (!ok) {
    return absl::UnavailableError("cannot create progress file " + path + ": " +
                                  std::strerror(errno));
  }
  return out;
}

std::optional<ProgressFile::Reading> ProgressFile::read() const {
  Words words{};
  if (::pread(file_.get(), words.data(), sizeof(words), 0) != static_cast<ssize_t>(sizeof(words))) {
    return std::nullopt;
  }
  if (word_at(words, kMagicOffset) != kMagic) return std::nullopt;
  Reading reading;
  reading.step = word_at(words, kStepOffset);
  const std::uint64_t saved = word_at(words, kCheckpointStepOffset);
  if (saved != 0) reading.checkpoint_step = saved;
  if (has_word_) {
    std::uint64_t word = 0;
    const ssize_t count = ::pread(file_.get(), &word, sizeof(word), kFaultWordOffset);
    reading.word_taken = count == static_cast<ssize_t>(sizeof(word)) && word == 0;
  }
  return reading;
}

void ProgressFile::ask(std::uint64_t fault_word, std::uint64_t fault_argument) {
  has_word_ = put(file_.get(), kFaultArgumentOffset, fault_argument) &&
              put(file_.get(), kFaultWordOffset, fault_word);
}

}  // namespace muster::agent
