// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/log_keeper.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <dirent.h>
#include <fcntl.h>
#include <filesystem>
#include <mutex>
#include <signal.h>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <tuple>
#include <unistd.h>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>
#include <climits>

#include "agent/shell/remove_tree.h"

namespace muster::agent {
namespace {

constexpr std::string_view kRunPrefix = "run-";
constexpr std::string_view kGoingPrefix = ".old-run-";  // of ours, on its way out
constexpr const char* kLockName = ".lock";
constexpr std::uint64_t kBlockBytes = 512;  // st_blocks

UniqueFd open_folder(int parent, const char* name) {
  return UniqueFd(::openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

bool is_own_folder(int parent, const std::string& name) {
  struct stat info {};
  return ::fstatat(parent, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISDIR(info.st_mode) && info.st_uid == ::geteuid();
}

std::vector<std::string> own_folders(int parent, std::string_view prefix) {
  std::vector<std::string> found;
  UniqueFd again = open_folder(parent, ".");
  DIR* entries = ::fdopendir(again.get());
  if (entries == nullptr) return found;
  static_cast<void>(again.release());  // closedir closes it
  while (const dirent* entry = ::readdir(entries)) {
    std::string name = entry->d_name;
    if (name.starts_with(prefix) && is_own_folder(parent, name)) found.push_back(std::move(name));
  }
  ::closedir(entries);
  return found;
}

// What a run's folder holds.
struct Content {
  std::uint64_t bytes = 0;
  std::int64_t written_unix_s = 0;  // the last time

  void add(const std::string& path) {
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0) return;
    bytes += static_cast<std::uint64_t>(info.st_blocks) * kBlockBytes;
    written_unix_s = std::max<std::int64_t>(written_unix_s, info.st_mtime);
  }
};

Content look_into(const std::string& folder) {
  using Walk = std::filesystem::recursive_directory_iterator;
  Content content;
  content.add(folder);
  std::error_code error;
  Walk walk(folder, std::filesystem::directory_options::skip_permission_denied, error);
  for (; !error && walk != Walk(); walk.increment(error))
    content.add(walk->path().string());
  return content;
}

std::string link_target(int parent, const char* name) {
  std::array<char, PATH_MAX> target{};
  const ssize_t length = ::readlinkat(parent, name, target.data(), target.size());
  return length > 0 ? std::string(target.data(), static_cast<std::size_t>(length)) : "";
}

// One pass over a job's runs.
class Removal {
 public:
  Removal(std::string job_path, UniqueFd job, const std::string& own)
      : job_path_(std::move(job_path)), job_(std::move(job)), own_(own) {}

  KeepReport run(const LogKeep& keep, std::int64_t now_unix_s) {
    for (const std::string& name : own_folders(job_.get(), kGoingPrefix))
      remove_tree_at(job_.get(), name.c_str());
    find_runs();
    latest_ = link_target(job_.get(), "latest");
    if (keep.runs) keep_number(*keep.runs);
    if (keep.age) keep_young(*keep.age, now_unix_s);
    if (keep.bytes) keep_small(*keep.bytes);
    return report_;
  }

 private:
  // A name says the second in which its run began; within it the lock files tell.
  void find_runs() {
    std::vector<std::tuple<std::string, std::int64_t, std::string>> found;
    for (std::string& name : own_folders(job_.get(), kRunPrefix)) {
      struct stat lock {};
      const std::string path = name + "/" + kLockName;
      if (::fstatat(job_.get(), path.c_str(), &lock, AT_SYMLINK_NOFOLLOW) != 0) continue;
      const std::int64_t made = lock.st_mtim.tv_sec * 1'000'000'000 + lock.st_mtim.tv_nsec;
      found.emplace_back(name.substr(0, name.rfind('-')), made, std::move(name));
    }
    std::sort(found.begin(), found.end());
    for (auto& [second, made, name] : found)
      names_.push_back(std::move(name));
  }

  bool stays(const std::string& name) const {
    return name == own_ || name == latest_ || name == names_.back();
  }

  void keep_number(std::uint32_t most) {
    const bool counted = std::find(names_.begin(), names_.end(), own_) != names_.end();
    std::size_t kept = counted ? 0 : 1;
    for (auto name = names_.rbegin(); name != names_.rend(); ++name) {
      if (kept < most || stays(*name)) {
        ++kept;
      } else {
        remove(*name);
      }
    }
  }

  void keep_young(Duration age, std::int64_t now_unix_s) {
    for (const std::string& name : names_) {
      if (stays(name)) continue;
      const std::int64_t written = look_into(job_path_ + "/" + name).written_unix_s;
      if (std::chrono::seconds(now_unix_s - written) > age) remove(name);
    }
  }

  void keep_small(std::uint64_t most) {
    std::vector<std::uint64_t> sizes;
    std::uint64_t all = 0;
    for (const std::string& name : names_) {
      sizes.push_back(look_into(job_path_ + "/" + name).bytes);
      all += sizes.back();
    }
    for (std::size_t i = 0; i < names_.size() && all > most; ++i) {
      if (!stays(names_[i]) && remove(names_[i])) all -= sizes[i];
    }
  }

  // False: it is used, or not ours, and stays as it is.
  bool remove(const std::string& name) {
    const UniqueFd folder = open_folder(job_.get(), name.c_str());
    if (!folder.valid()) return false;
    const UniqueFd lock(::openat(folder.get(), kLockName, O_RDWR | O_NOFOLLOW | O_CLOEXEC));
    if (!lock.valid() || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return false;
    const std::string going = ".old-" + name;
    if (::renameat(job_.get(), name.c_str(), job_.get(), going.c_str()) != 0) {
      if (errno != ENOENT) ++report_.stuck;  // else another node's agent was here first
      return false;
    }
    ++(remove_tree_at(job_.get(), going.c_str()) ? report_.removed : report_.stuck);
    return true;
  }

  std::string job_path_;
  UniqueFd job_;
  std::string own_;
  std::string latest_;
  std::vector<std::string> names_;  // oldest first
  KeepReport report_;
};

std::string words_of(const KeepReport& report) {
  std::string text;
  if (report.removed > 0) {
    text = "removed the logs of " + std::to_string(report.removed) + " old run(s) (--log-keep)";
  }
  if (report.stuck > 0) {
    text += (text.empty() ? "" : "; ") + std::to_string(report.stuck) +
            " old run(s) could not be removed whole (--log-keep)";
  }
  return text;
}

}  // namespace

UniqueFd lock_run_folder(const std::string& path) {
  const std::string name = path + "/" + kLockName;
  UniqueFd lock(::open(name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (lock.valid() && ::flock(lock.get(), LOCK_SH | LOCK_NB) != 0) lock.reset();
  return lock;
}

KeepReport remove_old_runs(const std::string& job_path, const std::string& own, const LogKeep& keep,
                           std::int64_t now_unix_s) {
  UniqueFd job = open_folder(AT_FDCWD, job_path.c_str());
  struct stat info {};
  if (!job.valid() || ::fstat(job.get(), &info) != 0 || info.st_uid != ::geteuid()) return {};
  return Removal(job_path, std::move(job), own).run(keep, now_unix_s);
}

// ------------------------------------------------------------------ LogKeeper

struct LogKeeper::State : std::enable_shared_from_this<LogKeeper::State> {
  std::mutex mutex;
  boost::asio::io_context* io = nullptr;  // null once the owner is gone
  std::function<void(std::string)> say;

  void tell(const KeepReport& report) {
    std::string text = words_of(report);
    const std::lock_guard lock(mutex);
    if (text.empty() || io == nullptr) return;
    boost::asio::post(*io, [self = shared_from_this(), text = std::move(text)]() mutable {
      // On the io thread, which is the owner's.
      if (self->io != nullptr) self->say(std::move(text));
    });
  }
};

LogKeeper::LogKeeper(boost::asio::io_context& io, LogKeep keep,
                     std::function<void(std::string)> say)
    : keep_(keep), state_(std::make_shared<State>()) {
  state_->io = &io;
  state_->say = std::move(say);
}

LogKeeper::~LogKeeper() {
  const std::lock_guard lock(state_->mutex);
  state_->io = nullptr;
}

void LogKeeper::run_started(const std::string& job_path, const std::string& run_path) {
  if (std::exchange(started_, true) || keep_.all() || run_path.empty()) return;
  // Signals are the io thread's; a thread that is stuck at the end dies with the process.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    const std::string own = std::filesystem::path(run_path).filename();
    std::thread([state = state_, job_path, own, keep = keep_] {
      state->tell(remove_old_runs(job_path, own, keep, ::time(nullptr)));
    }).detach();
  } catch (const std::system_error&) {
    // No thread to be had: the next start does it.
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace muster::agent
