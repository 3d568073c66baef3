// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/data/corpus.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <optional>
#include <span>
#include <sys/stat.h>
#include <unistd.h>

#include <absl/status/status.h>

#include "worker_runtime/data/digest.h"

namespace muster::runtime {
namespace {

absl::Status system_error(const std::string& path, const std::string& what, int error) {
  const std::string text = "corpus " + path + ": " + what + ": " + std::strerror(error);
  if (error == ENOENT) return absl::NotFoundError(text);
  if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(text);
  return absl::InternalError(text);
}

std::string kind_of(mode_t mode) {
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISBLK(mode)) return "a block device";
  if (S_ISCHR(mode)) return "a character device";
  return "not a file";
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// Appends the file's bytes to `into`. O_NONBLOCK: a FIFO that took the file's place since it was
// looked at must not stop us for ever.
absl::Status append_file(const std::string& path, std::vector<std::uint8_t>& into) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return system_error(path, "cannot open", errno);
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) return system_error(path, "cannot stat", errno);
  if (!S_ISREG(facts.st_mode)) {
    return absl::InvalidArgumentError("corpus " + path + " is " + kind_of(facts.st_mode) +
                                      ", not a regular file");
  }
  constexpr std::size_t kChunk = std::size_t{1} << 20U;
  std::size_t filled = into.size();
  for (;;) {
    into.resize(filled + kChunk);
    const ssize_t got = ::read(file.get(), into.data() + filled, kChunk);
    if (got < 0 && errno == EINTR) continue;
    const int error = got < 0 ? errno : 0;
    filled += got > 0 ? static_cast<std::size_t>(got) : 0;
    if (got > 0) continue;
    into.resize(filled);
    return error == 0 ? absl::OkStatus() : system_error(path, "cannot read", error);
  }
}

std::optional<std::string> real_path(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> resolved(::realpath(path.c_str(), nullptr),
                                                             &std::free);
  if (!resolved) return std::nullopt;
  return std::string(resolved.get());
}

// Lists what a directory holds, and judges links.
class Walk {
 public:
  Walk(std::string root, Corpus& corpus) : root_(std::move(root)), corpus_(corpus) {}

  // The files to read, in bytewise order of their path below the root.
  absl::StatusOr<std::vector<std::string>> files() {
    real_root_ = real_path(root_).value_or(root_);
    std::vector<std::string> pending = {""};
    while (!pending.empty()) {
      const std::string below = std::move(pending.back());
      pending.pop_back();
      const absl::Status status = enter(below, pending);
      if (!status.ok()) return status;
    }
    std::sort(files_.begin(), files_.end());
    std::sort(corpus_.others.begin(), corpus_.others.end());
    return std::move(files_);
  }

 private:
  absl::Status enter(const std::string& below, std::vector<std::string>& pending) {
    const std::string path = root_ + "/" + below;
    const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(path.c_str()), &::closedir);
    if (!dir) return system_error(path, "cannot open the directory", errno);
    for (;;) {
      errno = 0;
      const dirent* entry = ::readdir(dir.get());
      if (entry == nullptr) break;
      const std::string name = static_cast<const char*>(entry->d_name);
      if (name == "." || name == "..") continue;
      const absl::Status status = judge(below.empty() ? name : below + "/" + name, pending);
      if (!status.ok()) return status;
    }
    return errno == 0 ? absl::OkStatus() : system_error(path, "cannot list", errno);
  }

  absl::Status judge(const std::string& below, std::vector<std::string>& pending) {
    const std::string path = root_ + "/" + below;
    struct stat facts {};
    if (::lstat(path.c_str(), &facts) != 0) return system_error(path, "cannot stat", errno);
    if (S_ISDIR(facts.st_mode)) {
      pending.push_back(below);
    } else if (S_ISREG(facts.st_mode)) {
      files_.push_back(below);
    } else if (S_ISLNK(facts.st_mode)) {
      follow(below, path);
    } else {
      corpus_.others.push_back(path + " (" + kind_of(facts.st_mode) + ")");
    }
    return absl::OkStatus();
  }

  // A link to a file elsewhere was put here to be read; one to a file inside is its double; one
  // to a directory may be a circle.
  void follow(const std::string& below, const std::string& path) {
    const std::optional<std::string> target = real_path(path);
    struct stat facts {};
    if (!target || ::stat(target->c_str(), &facts) != 0) {
      corpus_.others.push_back(path + " (a broken link)");
    } else if (S_ISDIR(facts.st_mode)) {
      corpus_.others.push_back(path + " (a link to a directory)");
    } else if (!S_ISREG(facts.st_mode)) {
      corpus_.others.push_back(path + " (a link to " + kind_of(facts.st_mode).substr(2) + ")");
    } else if (target->starts_with(real_root_ + "/")) {
      ++corpus_.links;
    } else {
      files_.push_back(below);
    }
  }

  std::string root_;
  std::string real_root_;
  Corpus& corpus_;
  std::vector<std::string> files_;
};

absl::Status read_directory(const std::string& path, Corpus& corpus) {
  const absl::StatusOr<std::vector<std::string>> files = Walk(path, corpus).files();
  if (!files.ok()) return files.status();
  for (const std::string& below : *files) {
    const std::size_t before = corpus.bytes.size();
    const absl::Status status = append_file(path + "/" + below, corpus.bytes);
    if (!status.ok()) return status;
    const auto first = corpus.bytes.begin() + static_cast<std::ptrdiff_t>(before);
    if (std::find(first, corpus.bytes.end(), 0) != corpus.bytes.end()) {
      corpus.bytes.resize(before);
      ++corpus.binary_files;
    } else {
      ++corpus.files;
    }
  }
  return absl::OkStatus();
}

absl::Status read_single(const std::string& path, Corpus& corpus) {
  const absl::Status status = append_file(path, corpus.bytes);
  if (!status.ok()) return status;
  const auto nul = std::find(corpus.bytes.begin(), corpus.bytes.end(), 0);
  if (nul != corpus.bytes.end()) {
    return absl::InvalidArgumentError("corpus " + path + " is not text: NUL byte at offset " +
                                      std::to_string(nul - corpus.bytes.begin()));
  }
  corpus.files = 1;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Corpus> read_corpus(const std::string& path) {
  Corpus corpus;
  corpus.path = path;
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return system_error(path, "cannot read", errno);
  absl::Status status;
  if (S_ISDIR(facts.st_mode)) {
    status = read_directory(path, corpus);
  } else if (S_ISREG(facts.st_mode)) {
    status = read_single(path, corpus);
  } else {
    status = absl::InvalidArgumentError("corpus " + path + " is " + kind_of(facts.st_mode) +
                                        ": a text file or a directory of them is needed");
  }
  if (!status.ok()) return status;
  if (corpus.bytes.empty()) {
    return absl::InvalidArgumentError("corpus " + path + " is empty: " + describe(corpus));
  }
  corpus.digest = digest64(std::as_bytes(std::span(corpus.bytes)));
  return corpus;
}

std::string describe(const Corpus& corpus) {
  std::string text = std::to_string(corpus.files) + (corpus.files == 1 ? " file, " : " files, ") +
                     std::to_string(corpus.bytes.size()) + " bytes";
  std::string skipped;
  const auto add = [&skipped](const std::string& item) {
    skipped += (skipped.empty() ? "" : ", ") + item;
  };
  if (corpus.links > 0) add(std::to_string(corpus.links) + " links to files inside");
  if (corpus.binary_files > 0) add(std::to_string(corpus.binary_files) + " files with NUL bytes");
  constexpr std::size_t kNamed = 4;
  for (std::size_t i = 0; i < std::min(corpus.others.size(), kNamed); ++i)
    add(corpus.others[i]);
  if (corpus.others.size() > kNamed) {
    add(std::to_string(corpus.others.size() - kNamed) + " more that are no files");
  }
  return skipped.empty() ? text : text + "; skipped: " + skipped;
}

}  // namespace muster::runtime
