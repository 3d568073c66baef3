// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/console.h"

#include <algorithm>
#include <errno.h>
#include <fcntl.h>
#include <map>
#include <optional>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/shell/console_out.h"
#include "agent/shell/io_loop.h"
#include "agent/shell/log_files.h"
#include "agent/shell/output_wait.h"
#include "agent/shell/stream_pump.h"
#include "agent/shell/terminal/pty.h"

namespace muster::agent {
namespace {

constexpr StreamId kOwnLines = 1;  // Muster's; workers' streams follow
constexpr std::size_t kTailBytes = 4096;
constexpr std::size_t kReadBytes = 64 * 1024;
// What a worker may write ahead of us. A user has 64 MiB for all pipes (fs.pipe-user-pages-soft),
// after which new ones hold a page or two: a node's workers share a quarter of that.
constexpr std::size_t kPipesBytes = 16U << 20;
constexpr std::size_t kLargestPipe = 1U << 20;  // fs.pipe-max-size
constexpr std::size_t kUsualPipe = 64 * 1024;

bool is_same_file(int a, int b) {
  struct stat first {};
  struct stat second {};
  if (::fstat(a, &first) != 0 || ::fstat(b, &second) != 0) return false;
  if (S_ISCHR(first.st_mode) && S_ISCHR(second.st_mode)) return first.st_rdev == second.st_rdev;
  return first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

}  // namespace

ConsoleMode resolve_console_mode(const ConsoleConfig& config) {
  if (config.mode != ConsoleMode::kAuto) return config.mode;
  if (::isatty(config.stdout_fd) == 0) {
    return config.prefix_given ? ConsoleMode::kPrefixed : ConsoleMode::kLines;
  }
  const bool raw = config.local_workers == 1 && !config.must_hear;
  return raw ? ConsoleMode::kRaw : ConsoleMode::kPrefixed;
}

struct Console::State : std::enable_shared_from_this<Console::State> {
  struct Waiter {
    std::shared_ptr<boost::asio::steady_timer> timer;
    std::function<void()> done;
  };
  struct Worker {
    std::shared_ptr<StreamPump> out;
    std::shared_ptr<StreamPump> err;
    std::shared_ptr<TailBuffer> tail = std::make_shared<TailBuffer>();
    std::shared_ptr<TracebackWatch> tracebacks = std::make_shared<TracebackWatch>();
    std::shared_ptr<Instant> next_update = std::make_shared<Instant>();
    std::vector<Waiter> waiters;
    bool out_is_terminal = false;
    bool err_is_terminal = false;

    bool has_ended() const { return (!out || out->has_ended()) && (!err || err->has_ended()); }
  };

  State(boost::asio::io_context& context, ConsoleConfig settings)
      : io(context), config(std::move(settings)), mode(resolve_console_mode(config)) {}

  boost::asio::io_context& io;
  ConsoleConfig config;
  ConsoleMode mode;
  std::shared_ptr<OutputDrops> console_drops = std::make_shared<OutputDrops>();
  std::vector<std::shared_ptr<ConsoleSurface>> surfaces;
  std::shared_ptr<ConsoleOut> out;
  std::shared_ptr<ConsoleOut> err;
  std::shared_ptr<LogFiles> logs;
  std::optional<OutputWait> wait;
  std::shared_ptr<std::vector<char>> buffer;
  std::shared_ptr<std::uint64_t> heard = std::make_shared<std::uint64_t>(0);
  std::map<std::uint32_t, Worker> workers;
  StreamId next_stream = kOwnLines + 1;
  bool closed = false;

  void open_console();
  std::shared_ptr<ConsoleSurface> make_surface(const char* name, int fd);
  std::shared_ptr<OutputTarget> console_target(const char* name, int fd);
  int open_stream(const WorkerOutput& plan, Worker& worker, bool is_err, WorkerEnds& ends);
  UniqueFd open_source(Worker& worker, bool is_err, bool shown, UniqueFd& end);
  std::string prefix_of(const WorkerOutput& plan) const;
  bool is_prefixed(const ConsoleOut& console) const;
  void open_files(const WorkerOutput& plan, bool is_err, bool shown, PumpConfig& pump);
  void say(std::string_view line);
  void cut_off(Worker& worker);
  void stream_ended(std::uint32_t local_rank);
};

void Console::State::open_console() {
  const bool shared = is_same_file(config.stdout_fd, config.stderr_fd);
  surfaces.push_back(make_surface(shared ? "the console" : "stdout", config.stdout_fd));
  if (!shared) surfaces.push_back(make_surface("stderr", config.stderr_fd));
  out = std::make_shared<ConsoleOut>(surfaces.front(), console_target("stdout", config.stdout_fd));
  err = std::make_shared<ConsoleOut>(surfaces.back(), console_target("stderr", config.stderr_fd));
  logs = std::make_shared<LogFiles>(io, config.rotation,
                                    [self = weak_from_this()](const std::string& line) {
                                      const auto state = self.lock();
                                      if (state && !state->closed) state->say(line);
                                    });
  wait.emplace(io, surfaces, logs->writer());
  buffer = std::make_shared<std::vector<char>>(kReadBytes);
}

std::shared_ptr<ConsoleSurface> Console::State::make_surface(const char* name, int fd) {
  SpoolLimits limits;
  limits.folder = config.spool_folder;
  return std::make_shared<ConsoleSurface>(
      io, fd, std::move(limits), [self = weak_from_this(), name](std::uint64_t bytes) {
        const auto state = self.lock();
        if (!state || state->closed) return;
        state->console_drops->bytes += bytes;
        state->say(std::string(name) + " was not read for long: the oldest " +
                   std::to_string(bytes) + " bytes that waited for it are lost");
      });
}

std::shared_ptr<OutputTarget> Console::State::console_target(const char* name, int fd) {
  auto target = std::make_shared<OutputTarget>();
  target->name = name;
  target->fd = fd;
  target->give_up_on_close = true;
  target->drops = console_drops;
  target->failed = [self = weak_from_this(), name](int error) {
    const auto state = self.lock();
    if (!state || state->closed) return;
    state->say(std::string("cannot write to ") + name + ": " + ::strerror(error) +
               "; what cannot be shown is dropped, the job goes on");
  };
  return target;
}

std::string Console::State::prefix_of(const WorkerOutput& plan) const {
  return make_line_prefix(config.prefix,
                          {config.job, config.node, plan.generation, plan.rank, plan.local_rank});
}

bool Console::State::is_prefixed(const ConsoleOut& console) const {
  if (mode == ConsoleMode::kPrefixed) return true;
  return mode == ConsoleMode::kPty && config.local_workers > 1 &&
         (console.terminal() || config.prefix_given);
}

// Opens a pipe, or a terminal in pty mode. Returns our end, invalid where there is none to be had.
UniqueFd Console::State::open_source(Worker& worker, bool is_err, bool shown, UniqueFd& end) {
  if (mode == ConsoleMode::kPty && shown) {
    if (std::optional<Pty> pty = open_pty(config.stdout_fd)) {
      end = std::move(pty->slave);
      (is_err ? worker.err_is_terminal : worker.out_is_terminal) = true;
      return std::move(pty->master);
    }
    say(std::string("no terminal for a worker: ") + ::strerror(errno) + "; it gets a pipe");
  }
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) {
    return UniqueFd();
  }
  UniqueFd source(fds[0]);
  end.reset(fds[1]);
  // The reading end is ours alone; the worker's end stays as programs expect it.
  ::fcntl(source.get(), F_SETFL, O_NONBLOCK);
  const std::size_t bytes =
      std::min(kPipesBytes / (2 * std::max(config.local_workers, 1U)), kLargestPipe);
  // Refused where the user's share is used up: then it stays as it was made.
  if (bytes > kUsualPipe) ::fcntl(source.get(), F_SETPIPE_SZ, static_cast<int>(bytes));
  return source;
}

// The stream's log file and where its picked lines go.
void Console::State::open_files(const WorkerOutput& plan, bool is_err, bool shown,
                                PumpConfig& pump) {
  const std::string& log_path = is_err ? plan.stderr_log : plan.stdout_log;
  const std::string& picked_path = is_err ? plan.stderr_picked : plan.stdout_picked;
  const bool logged = !log_path.empty() || (is_err ? plan.stderr_unlogged : plan.stdout_unlogged);
  pump.log_writer = logs->writer();
  if (!log_path.empty()) pump.log = logs->open(log_path);
  if (logged && !pump.log) pump.unlogged = logs->unlogged();
  // Output that was to be kept is not lost with its log: whatever mode the console is in, it has
  // all of it where there is no file, and what does not fit where there is one.
  pump.only_lost = !shown && pump.log != nullptr;
  if (shown || logged) {
    pump.console = is_err ? err : out;
    if (is_prefixed(*pump.console)) pump.prefix = prefix_of(plan);
  }
  if (picked_path.empty()) return;
  pump.picked = logs->open_shared(picked_path);
  if (!pump.picked) return;
  pump.filter.emplace(is_err ? config.stderr_filters : config.stdout_filters, prefix_of(plan));
}

// Returns the descriptor for the worker: owned, inherited, or -1.
int Console::State::open_stream(const WorkerOutput& plan, Worker& worker, bool is_err,
                                WorkerEnds& ends) {
  UniqueFd& owned = is_err ? ends.err : ends.out;
  const bool shown = (is_err ? plan.stderr_on_console : plan.stdout_on_console) &&
                     mode != ConsoleMode::kNone && (mode != ConsoleMode::kRank0 || plan.rank == 0);
  const bool for_files =
      is_err ? plan.stderr_unlogged || !plan.stderr_log.empty() || !plan.stderr_picked.empty()
             : plan.stdout_unlogged || !plan.stdout_log.empty() || !plan.stdout_picked.empty();
  if (mode == ConsoleMode::kRaw && shown && !for_files) {
    return is_err ? config.stderr_fd : config.stdout_fd;
  }
  if (!is_err && !shown && !for_files) return -1;
  PumpConfig pump;
  pump.source = open_source(worker, is_err, shown, owned);
  if (!pump.source.valid()) {
    ends.error = errno;
    return -1;
  }
  pump.id = next_stream++;
  open_files(plan, is_err, shown, pump);
  if (is_err) {
    pump.tail = worker.tail;
    pump.tracebacks = worker.tracebacks;
  }
  pump.buffer = buffer;
  pump.heard = heard;
  pump.next_update = worker.next_update;
  auto& place = is_err ? worker.err : worker.out;
  place = std::make_shared<StreamPump>(io, std::move(pump));
  place->start([self = weak_from_this(), local_rank = plan.local_rank] {
    if (const auto state = self.lock()) state->stream_ended(local_rank);
  });
  return owned.get();
}

void Console::State::say(std::string_view line) {
  std::string text("muster: ");
  (text += line) += '\n';
  err->show(kOwnLines, PieceKind::kWhole, text, {});
}

void Console::State::cut_off(Worker& worker) {
  if (worker.out) worker.out->close();
  if (worker.err) worker.err->close();
}

void Console::State::stream_ended(std::uint32_t local_rank) {
  const auto found = workers.find(local_rank);
  if (closed || found == workers.end() || !found->second.has_ended()) return;
  for (Waiter& waiter : std::exchange(found->second.waiters, {})) {
    waiter.timer->cancel();
    waiter.done();
  }
}

// ------------------------------------------------------------------ Console

Console::Console(boost::asio::io_context& io, ConsoleConfig config)
    : state_(std::make_shared<State>(io, std::move(config))) {
  state_->open_console();
}

Console::~Console() {
  state_->closed = true;
  for (auto& [local_rank, worker] : state_->workers)
    state_->cut_off(worker);
  state_->workers.clear();
  for (const auto& surface : state_->surfaces)
    surface->writer.close();
  state_->logs->writer()->close();
}

ConsoleMode Console::mode() const {
  return state_->mode;
}

WorkerEnds Console::open_worker(const WorkerOutput& plan) {
  State::Worker& worker = state_->workers[plan.local_rank];
  state_->cut_off(worker);
  // Who waited for the earlier life is told: it is over.
  for (auto& waiter : std::exchange(worker.waiters, {})) {
    waiter.timer->cancel();
    boost::asio::post(state_->io, std::move(waiter.done));
  }
  worker = State::Worker();
  WorkerEnds ends;
  ends.out_fd = state_->open_stream(plan, worker, false, ends);
  ends.err_fd = state_->open_stream(plan, worker, true, ends);
  return ends;
}

std::string Console::tail(std::uint32_t local_rank, std::size_t lines) {
  const auto found = state_->workers.find(local_rank);
  if (found == state_->workers.end()) return {};
  if (found->second.err) found->second.err->drain_now();
  return found->second.tail->last_lines(lines, kTailBytes);
}

std::optional<Instant> Console::last_words(std::uint32_t local_rank) const {
  const auto found = state_->workers.find(local_rank);
  if (found == state_->workers.end() || !found->second.err) return std::nullopt;
  return found->second.err->last_read();
}

std::optional<Duration> Console::failing_for(std::uint32_t local_rank) {
  const auto found = state_->workers.find(local_rank);
  if (found == state_->workers.end()) return std::nullopt;
  if (found->second.err) found->second.err->drain_now();
  const Instant now = IoLoop::now();
  const std::optional<Instant> since = found->second.tracebacks->failing_since(now);
  return since ? std::optional(now - *since) : std::nullopt;
}

std::uint64_t Console::heard() const {
  return *state_->heard;
}

std::string Console::kept_stderr(std::uint32_t local_rank) {
  const auto found = state_->workers.find(local_rank);
  if (found == state_->workers.end()) return {};
  if (found->second.err) found->second.err->drain_now();
  return found->second.tail->kept();
}

void Console::finish_worker(std::uint32_t local_rank, Duration limit, std::function<void()> done) {
  const auto found = state_->workers.find(local_rank);
  if (found == state_->workers.end() || found->second.has_ended()) {
    boost::asio::post(state_->io, std::move(done));
    return;
  }
  auto timer = std::make_shared<boost::asio::steady_timer>(state_->io);
  timer->expires_after(limit);
  // The streams of this life: the rank may have a new one by then.
  timer->async_wait(
      [out = found->second.out, err = found->second.err](const boost::system::error_code& error) {
        if (error) return;
        if (out) out->close();
        if (err) err->close();
      });
  found->second.waiters.push_back({std::move(timer), std::move(done)});
}

void Console::say(std::string_view line) {
  state_->say(line);
}

void Console::write_stderr(std::string text) {
  state_->err->show(kOwnLines, text.ends_with('\n') ? PieceKind::kWhole : PieceKind::kPart, text,
                    {});
}

void Console::write_stdout(std::string text) {
  state_->out->show(kOwnLines, text.ends_with('\n') ? PieceKind::kWhole : PieceKind::kPart, text,
                    {});
}

void Console::flush(Duration patience, Duration limit, std::function<void()> done) {
  state_->wait->start(patience, limit, std::move(done));
}

void Console::give_up() {
  state_->wait->give_up();
}

std::string Console::missing() {
  std::string text;
  for (const auto& surface : state_->surfaces) {
    const std::uint64_t bytes = surface->writer.missing();
    if (bytes == 0) continue;
    state_->console_drops->bytes += bytes;
    if (!text.empty()) text += ", ";
    const bool first = surface == state_->surfaces.front();
    text += std::to_string(bytes) + " bytes of " + (first ? "stdout" : "stderr");
  }
  return text;
}

std::string Console::missing_in_logs() const {
  return state_->logs->missing();
}

std::vector<std::uint32_t> Console::resize_terminals() {
  std::vector<std::uint32_t> resized;
  for (auto& [local_rank, worker] : state_->workers) {
    const bool out = worker.out && worker.out_is_terminal && !worker.out->has_ended();
    const bool err = worker.err && worker.err_is_terminal && !worker.err->has_ended();
    if (out) copy_terminal_size(state_->config.stdout_fd, worker.out->source());
    if (err) copy_terminal_size(state_->config.stdout_fd, worker.err->source());
    if (out || err) resized.push_back(local_rank);
  }
  return resized;
}

ConsoleCounters Console::counters() const {
  ConsoleCounters counters;
  counters.console_bytes_dropped = state_->console_drops->bytes;
  counters.log_bytes_dropped = state_->logs->unlogged()->bytes;
  counters.log_write_errors = state_->logs->unlogged()->errors;
  return counters;
}

}  // namespace muster::agent
