// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/stack_capture.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <deque>
#include <exception>
#include <fcntl.h>
#include <mutex>
#include <poll.h>
#include <set>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/shell/descendants.h"
#include "agent/shell/io_loop.h"
#include "agent/shell/stack_snapshot.h"
#include "agent/shell/stack_tool.h"
#include "agent/shell/unique_fd.h"
#include "agent/shell/write_all.h"

namespace muster::agent {
namespace {

constexpr std::size_t kTools = 2;  // at once: they take processors from who still works
constexpr int kLookMs = 100;       // whatever else wakes the thread
// What the thread keeps of the limit for ending its tools.
constexpr Duration kReserve = 200ms;
constexpr Duration kLastCall = 100ms;

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

// One capture: what the thread works on, and what is known when the time is over.
struct Work {
  std::vector<StackTarget> targets;
  std::string search;
  Instant until;
  UniqueFd wake{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::atomic<bool> cancelled{false};
  std::mutex guard;  // of all below, and of what is posted: not to a loop that is gone
  std::condition_variable changed;
  bool ended = false;
  std::vector<CapturedStacks> results;
  ToolGroups tools;

  std::vector<CapturedStacks> known() {
    const std::lock_guard lock(guard);
    return results;
  }
  void cancel() {
    const std::lock_guard lock(guard);
    cancelled = true;
    tools.kill_all();
    ::eventfd_write(wake.get(), 1);
  }
  void await_end(Duration limit) {
    std::unique_lock lock(guard);
    changed.wait_for(lock, limit, [this] { return ended; });
  }
};

// The thread's side.
class Capturer {
 public:
  explicit Capturer(Work& work) : work_(work) {}

  void run() {
    for (std::size_t i = 0; i < work_.targets.size() && !over(); ++i)
      snapshot(i);
    // Of all workers the first process before the second of any: those that it has started
    // (loaders of data) may be many.
    std::stable_sort(waiting_.begin(), waiting_.end(),
                     [](const Wanted& a, const Wanted& b) { return a.place < b.place; });
    while (!over()) {
      start_some();
      if (running_.empty()) break;
      sleep();
      std::erase_if(running_, [this](Running& one) { return !goes_on(one); });
    }
    for (Running& one : running_) {
      one.tool->kill();
      restore(one.target);
      append(one.file, one.heading + one.tool->output() + "(it took too long and was stopped)\n");
    }
    for (const Wanted& one : waiting_)
      append(one.file,
             "process " + std::to_string(one.target.pid) + ": no time was left for its stacks\n");
  }

 private:
  struct Wanted {
    ProcessInfo target;
    int file = -1;
    std::size_t place = 0;  // among those of its worker
  };
  struct Running {
    std::unique_ptr<Tool> tool;
    int file = -1;
    std::string heading;
    ProcessInfo target;
  };

  bool over() const { return work_.cancelled || IoLoop::now() + kReserve >= work_.until; }

  // Until a tool has something to tell, or somebody does not want to wait any more.
  void sleep() {
    std::vector<pollfd> looked{{work_.wake.get(), POLLIN, 0}};
    for (const Running& one : running_) {
      looked.push_back({one.tool->pipe(), POLLIN, 0});
      looked.push_back({one.tool->pidfd(), POLLIN, 0});
    }
    ::poll(looked.data(), looked.size(), kLookMs);
  }

  bool goes_on(Running& one) {
    if (one.tool->goes_on()) return true;
    // Cancelling kills it too.
    if (one.tool->killed() || work_.cancelled) restore(one.target);
    append(one.file, one.heading + one.tool->output());
    return false;
  }

  // A debugger attaches by SIGSTOP. Killed before it has taken that back, it leaves the process
  // stopped; SIGCONT takes it back even where it is not delivered yet. What somebody had stopped
  // stays so.
  static void restore(const ProcessInfo& target) {
    const auto now = read_process(target.pid);
    if (!now || key_of(*now) != key_of(target)) return;
    if (target.state != 'T') {
      signal_process(target, SIGCONT);
    } else if (now->state != 'T') {
      signal_process(target, SIGSTOP);
    }
  }

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
    // Non-blocking: a pipe of that name would have us wait for a reader.
    constexpr int kFlags =
        O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    UniqueFd file(::open(target.path.c_str(), kFlags, 0600));
    struct stat info {};
    if (!file.valid() || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
    append(file.get(), "Stacks of rank " + std::to_string(target.rank) + ", pid " +
                           std::to_string(target.pid) + ", at " + utc_now() + "\n");
    std::size_t place = 0;
    for (const pid_t pid : processes_of(target.pid)) {
      const auto process = read_process(pid);
      const std::string lines = snapshot_of(pid);
      if (!process || lines.empty()) continue;
      append(file.get(), lines);
      waiting_.push_back({*process, file.get(), place++});
    }
    files_.push_back(std::move(file));
    return true;
  }

  void start_some() {
    while (!waiting_.empty() && running_.size() < kTools) {
      const Wanted wanted = waiting_.front();
      waiting_.pop_front();
      start_tool(wanted);
    }
  }

  void start_tool(const Wanted& wanted) {
    const std::string pid = std::to_string(wanted.target.pid);
    const std::string py_spy = find_program(work_.search, "py-spy");
    const std::string gdb = find_program(work_.search, "gdb");
    std::vector<std::string> words;
    if (!py_spy.empty() && is_python(wanted.target.pid)) {
      words = {py_spy, "dump", "--pid", pid};
    } else if (!gdb.empty()) {
      words = {gdb, "-nx", "-batch", "-p", pid, "-ex", "thread apply all bt 64"};
    } else {
      if (!told_missing_.insert(wanted.file).second) return;
      return append(wanted.file,
                    "== no stacks of programs: neither py-spy nor gdb is in the PATH\n");
    }
    std::string heading = "== process " + pid + " by " + words[0] + "\n";
    running_.push_back({std::make_unique<Tool>(work_.tools, std::move(words)), wanted.file,
                        std::move(heading), wanted.target});
  }

  Work& work_;
  std::vector<UniqueFd> files_;
  std::deque<Wanted> waiting_;
  std::vector<Running> running_;
  std::set<int> told_missing_;  // files
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
    ended->cancel();
    std::exchange(done, nullptr)(ended->known());
  }
  void drop(Duration wait) {
    timer.cancel();
    done = nullptr;
    const std::shared_ptr<Work> dropped = std::exchange(work, nullptr);
    if (!dropped) return;
    dropped->cancel();
    dropped->await_end(wait);
  }
};

StackCapture::StackCapture(boost::asio::io_context& io, std::string search)
    : state_(std::make_shared<State>(io, std::move(search))) {}

StackCapture::~StackCapture() {
  state_->drop(kLastCall);
}

void StackCapture::start(std::vector<StackTarget> targets, Duration limit,
                         std::function<void(std::vector<CapturedStacks>)> done) {
  state_->drop(Duration{0});
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
  // Detached: a read of /proc that hangs holds up nobody. The loop is touched under the guard only.
  const auto body = [work, finish_this, &io = state_->io] {
    try {
      Capturer(*work).run();
    } catch (const std::exception&) {  // no memory: what is known counts
    }
    const std::lock_guard lock(work->guard);
    work->ended = true;
    work->changed.notify_all();
    if (!work->cancelled) boost::asio::post(io, finish_this);
  };
  // Signals are the io thread's.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread(body).detach();
  } catch (const std::system_error&) {  // too many processes, as there may be in a hang
    work->ended = true;
    boost::asio::post(state_->io, finish_this);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace muster::agent
