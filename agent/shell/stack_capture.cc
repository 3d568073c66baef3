// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/stack_capture.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <deque>
#include <fcntl.h>
#include <mutex>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/shell/descendants.h"
#include "agent/shell/io_loop.h"
#include "agent/shell/stack_snapshot.h"
#include "agent/shell/unique_fd.h"
#include "agent/shell/write_all.h"

extern char** environ;

namespace muster::agent {
namespace {

constexpr int kTools = 2;  // at once
constexpr int kLookMs = 20;
// What the thread keeps of the limit for ending its tools.
constexpr Duration kReserve = 200ms;

void append(int fd, std::string_view text) {
  std::atomic<std::uint64_t> written{0};
  write_all(fd, text, written);
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts));
}

std::string find_program(const std::string& search, const char* name) {
  for (std::size_t at = 0; at <= search.size();) {
    const std::size_t end = std::min(search.find(':', at), search.size());
    std::string path = search.substr(at, end - at) + "/" + name;
    if (end > at && ::access(path.c_str(), X_OK) == 0) return path;
    at = end + 1;
  }
  return "";
}

// A program that looks at one process and writes to a file.
class Tool {
 public:
  // Not running afterwards: it could not be started, which the file says.
  Tool(std::vector<std::string> words, int file) {
    std::vector<char*> argv;
    for (std::string& word : words)
      argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, file, 1);
    ::posix_spawn_file_actions_adddup2(&actions, file, 2);
    posix_spawnattr_t attributes;
    ::posix_spawnattr_init(&attributes);
    sigset_t none;
    sigset_t all;
    sigemptyset(&none);
    sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setsigdefault(&attributes, &all);
    ::posix_spawnattr_setpgroup(&attributes, 0);
    ::posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    const int error = ::posix_spawn(&pid_, argv[0], &actions, &attributes, argv.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
    if (error != 0) {
      append(file, words[0] + ": " + std::strerror(error) + "\n");
      return;
    }
    // Gone already, and reaped by others: the call fails.
    pidfd_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  }
  ~Tool() { kill(); }
  Tool(const Tool&) = delete;
  Tool& operator=(const Tool&) = delete;

  bool runs() {
    if (!pidfd_.valid()) return false;
    pollfd ready{pidfd_.get(), POLLIN, 0};
    if (::poll(&ready, 1, 0) == 0) return true;
    reap();
    return false;
  }
  void kill() {
    if (!runs()) return;
    ::kill(-pid_, SIGKILL);
    pollfd ready{pidfd_.get(), POLLIN, 0};
    ::poll(&ready, 1, 100);
    reap();
  }

 private:
  // Whoever reaps orphans here may have been faster.
  void reap() {
    ::waitpid(pid_, nullptr, WNOHANG);
    pidfd_.reset();
  }

  pid_t pid_ = -1;
  UniqueFd pidfd_;
};

// One capture: what the thread works on, and what is known when the time is over.
struct Work {
  std::vector<StackTarget> targets;
  std::string search;
  Instant until;
  std::atomic<bool> cancelled{false};
  std::mutex guard;  // of results, and of what is posted: not to a loop that is gone
  std::vector<CapturedStacks> results;

  std::vector<CapturedStacks> known() {
    const std::lock_guard lock(guard);
    return results;
  }
};

// The thread's side.
class Capturer {
 public:
  explicit Capturer(Work& work) : work_(work) {}

  void run() {
    for (std::size_t i = 0; i < work_.targets.size() && !over(); ++i)
      snapshot(i);
    while (!over() && (!waiting_.empty() || !running_.empty())) {
      std::erase_if(running_, [](Running& one) { return !one.tool->runs(); });
      start_some();
      std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));
    }
    for (Running& one : running_) {
      one.tool->kill();
      append(one.file, "(it took too long and was stopped)\n");
    }
    for (const Wanted& one : waiting_)
      append(one.file,
             "process " + std::to_string(one.pid) + ": no time was left for its stacks\n");
  }

 private:
  struct Wanted {
    pid_t pid = 0;
    int file = -1;
  };
  struct Running {
    std::unique_ptr<Tool> tool;
    int file = -1;
  };

  bool over() const { return work_.cancelled || IoLoop::now() + kReserve >= work_.until; }

  void snapshot(std::size_t index) {
    const StackTarget& target = work_.targets[index];
    const auto leader = read_process(target.pid);
    const bool stopped = leader && leader->state == 'T';
    bool written = false;
    if (leader && !target.path.empty()) written = write_snapshot(target);
    const std::lock_guard lock(work_.guard);
    work_.results[index].stopped = stopped;
    if (written) work_.results[index].path = target.path;
  }

  bool write_snapshot(const StackTarget& target) {
    UniqueFd file(::open(target.path.c_str(),
                         O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file.valid()) return false;
    append(file.get(), "Stacks of rank " + std::to_string(target.rank) + ", pid " +
                           std::to_string(target.pid) + ", at " + utc_now() + "\n");
    for (const pid_t pid : processes_of(target.pid)) {
      const std::string lines = snapshot_of(pid);
      if (lines.empty()) continue;
      append(file.get(), lines);
      waiting_.push_back({pid, file.get()});
    }
    files_.push_back(std::move(file));
    return true;
  }

  // One at a time for each file, so that they do not write into each other.
  void start_some() {
    for (auto wanted = waiting_.begin(); wanted != waiting_.end();) {
      const bool busy = std::any_of(running_.begin(), running_.end(),
                                    [&](const Running& one) { return one.file == wanted->file; });
      if (running_.size() >= kTools || busy) {
        ++wanted;
        continue;
      }
      start_tool(*wanted);
      wanted = waiting_.erase(wanted);
    }
  }

  void start_tool(const Wanted& wanted) {
    const std::string pid = std::to_string(wanted.pid);
    const std::string py_spy = find_program(work_.search, "py-spy");
    const std::string gdb = find_program(work_.search, "gdb");
    std::vector<std::string> words;
    if (!py_spy.empty() && is_python(wanted.pid)) {
      words = {py_spy, "dump", "--pid", pid};
    } else if (!gdb.empty()) {
      words = {gdb, "-nx", "-batch", "-p", pid, "-ex", "thread apply all bt 64"};
    } else {
      if (std::exchange(said_missing_, true)) return;
      return append(wanted.file,
                    "== no stacks of programs: neither py-spy nor gdb is in the PATH\n");
    }
    append(wanted.file, "== process " + pid + " by " + words[0] + "\n");
    running_.push_back({std::make_unique<Tool>(std::move(words), wanted.file), wanted.file});
  }

  Work& work_;
  std::vector<UniqueFd> files_;
  std::deque<Wanted> waiting_;
  std::vector<Running> running_;
  bool said_missing_ = false;
};

}  // namespace

struct StackCapture::State : std::enable_shared_from_this<StackCapture::State> {
  State(boost::asio::io_context& context, std::string folders)
      : io(context), timer(context), search(std::move(folders)) {}

  boost::asio::io_context& io;
  boost::asio::steady_timer timer;
  std::string search;
  std::shared_ptr<Work> work;
  std::function<void(std::vector<CapturedStacks>)> done;

  void finish() {
    timer.cancel();
    const std::shared_ptr<Work> ended = std::exchange(work, nullptr);
    ended->cancelled = true;
    std::exchange(done, nullptr)(ended->known());
  }
  void drop() {
    timer.cancel();
    if (work) {
      const std::lock_guard lock(work->guard);
      work->cancelled = true;
    }
    work.reset();
    done = nullptr;
  }
};

StackCapture::StackCapture(boost::asio::io_context& io, std::string search)
    : state_(std::make_shared<State>(io, std::move(search))) {}

StackCapture::~StackCapture() {
  state_->drop();
}

void StackCapture::start(std::vector<StackTarget> targets, Duration limit,
                         std::function<void(std::vector<CapturedStacks>)> done) {
  state_->drop();
  auto work = std::make_shared<Work>();
  for (const StackTarget& target : targets)
    work->results.push_back({target.local_rank, "", false});
  work->targets = std::move(targets);
  work->search = state_->search;
  work->until = IoLoop::now() + limit;
  state_->work = work;
  state_->done = std::move(done);
  const auto finish_this = [weak = std::weak_ptr(state_), work] {
    const auto state = weak.lock();
    if (state && state->work == work) state->finish();
  };
  state_->timer.expires_after(limit);
  state_->timer.async_wait([finish_this](const boost::system::error_code& error) {
    if (!error) finish_this();
  });
  // Detached: a read of /proc that hangs holds up nobody. The context outlives the process's work.
  std::thread([work, finish_this, &io = state_->io] {
    Capturer(*work).run();
    const std::lock_guard lock(work->guard);
    if (!work->cancelled) boost::asio::post(io, finish_this);
  }).detach();
}

}  // namespace muster::agent
