// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/stdin_feed.h"

#include <condition_variable>
#include <errno.h>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <poll.h>
#include <signal.h>
#include <string>
#include <string_view>
#include <sys/eventfd.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>

namespace muster::agent {
namespace {

constexpr std::size_t kChunkBytes = 4096;
constexpr int kBackgroundPauseMs = 500;

// Another job has the terminal: what is typed there is not for us.
bool is_in_background(int fd) {
  const pid_t foreground = ::tcgetpgrp(fd);
  return foreground > 0 && foreground != ::getpgrp();
}

// Reads the input when asked to, one chunk at a time. Outlives its owner if it is stuck in read.
struct Reader {
  explicit Reader(int source) : fd(source), wake(::eventfd(0, EFD_CLOEXEC)) {}

  int fd;
  UniqueFd wake;
  std::mutex mutex;
  std::condition_variable changed;
  bool wanted = false;
  bool closed = false;
  boost::asio::io_context* io = nullptr;     // null once the owner is gone
  std::function<void(std::string)> arrived;  // on the io thread; empty text: the end

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return wanted || closed; });
      if (closed) return;
      lock.unlock();
      std::string text = read_chunk();
      lock.lock();
      if (closed || io == nullptr) return;
      wanted = false;
      const bool end = text.empty();
      boost::asio::post(*io, [call = arrived, text = std::move(text)] { call(text); });
      if (end) return;
    }
  }

  // Empty: the end of the input, or our own.
  std::string read_chunk() {
    std::string text(kChunkBytes, '\0');
    for (;;) {
      pollfd ready[2] = {{fd, POLLIN, 0}, {wake.get(), POLLIN, 0}};
      ::poll(ready, 2, -1);
      if (ready[1].revents != 0) return {};
      if (ready[0].revents == 0) continue;
      const ssize_t count = ::read(fd, text.data(), text.size());
      if (count >= 0) {
        text.resize(static_cast<std::size_t>(count));
        return text;
      }
      if (errno == EIO && is_in_background(fd)) {
        // SIGTTIN is ignored, so the terminal says EIO instead of stopping us.
        ::poll(&ready[1], 1, kBackgroundPauseMs);
      } else if (errno != EINTR && errno != EAGAIN) {
        return {};
      }
    }
  }
};

}  // namespace

struct StdinFeed::State : std::enable_shared_from_this<StdinFeed::State> {
  struct Pipe {
    explicit Pipe(boost::asio::io_context& io) : descriptor(io) {}

    boost::asio::posix::stream_descriptor descriptor;
    std::string pending;
    bool open = true;
  };

  State(boost::asio::io_context& context, StdinConfig settings) : io(context), config(settings) {}

  boost::asio::io_context& io;
  StdinConfig config;
  std::shared_ptr<Reader> reader;
  std::map<std::uint32_t, std::shared_ptr<Pipe>> pipes;
  bool ended = false;  // of the input
  bool asked = false;  // the reader is at it

  bool is_fed() const { return config.all || (!config.raw && ::isatty(config.fd) == 1); }

  void start_reader() {
    reader = std::make_shared<Reader>(config.fd);
    reader->io = &io;
    reader->arrived = [self = weak_from_this()](const std::string& text) {
      if (const auto state = self.lock()) state->distribute(text);
    };
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      std::thread([reader = reader] { reader->run(); }).detach();
    } catch (const std::system_error&) {
      ended = true;  // no thread to be had: workers see an empty input
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  // Asks for more once everybody has taken what there was.
  void ask() {
    if (asked || ended || pipes.empty()) return;
    for (const auto& [local_rank, pipe] : pipes) {
      if (!pipe->pending.empty()) return;
    }
    if (!reader) start_reader();
    asked = true;
    const std::lock_guard lock(reader->mutex);
    reader->wanted = true;
    reader->changed.notify_one();
  }

  void distribute(const std::string& text) {
    asked = false;
    if (text.empty()) {
      ended = true;
      for (const auto& [local_rank, pipe] : std::exchange(pipes, {}))
        close(*pipe);
      return;
    }
    const auto now = pipes;
    for (const auto& [local_rank, pipe] : now) {
      pipe->pending += text;
      push(local_rank, pipe);
    }
    ask();
  }

  static void close(Pipe& pipe) {
    pipe.open = false;
    boost::system::error_code ignored;
    pipe.descriptor.close(ignored);
  }

  void push(std::uint32_t local_rank, const std::shared_ptr<Pipe>& pipe) {
    while (pipe->open && !pipe->pending.empty()) {
      const ssize_t count =
          ::write(pipe->descriptor.native_handle(), pipe->pending.data(), pipe->pending.size());
      if (count >= 0) {
        pipe->pending.erase(0, static_cast<std::size_t>(count));
      } else if (errno == EAGAIN) {
        pipe->descriptor.async_wait(
            boost::asio::posix::stream_descriptor::wait_write,
            [self = shared_from_this(), local_rank, pipe](const boost::system::error_code& error) {
              if (error || !pipe->open) return;
              self->push(local_rank, pipe);
              self->ask();
            });
        return;
      } else if (errno != EINTR) {
        drop(local_rank);  // it reads no more
        return;
      }
    }
  }

  void drop(std::uint32_t local_rank) {
    const auto found = pipes.find(local_rank);
    if (found == pipes.end()) return;
    close(*found->second);
    pipes.erase(found);
  }
};

StdinFeed::StdinFeed(boost::asio::io_context& io, StdinConfig config)
    : state_(std::make_shared<State>(io, config)) {}

StdinFeed::~StdinFeed() {
  for (const auto& [local_rank, pipe] : std::exchange(state_->pipes, {}))
    State::close(*pipe);
  if (!state_->reader) return;
  Reader& reader = *state_->reader;
  const std::lock_guard lock(reader.mutex);
  reader.closed = true;
  reader.io = nullptr;
  reader.changed.notify_one();
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(reader.wake.get(), &one, sizeof one);
}

StdinEnd StdinFeed::open_worker(std::uint32_t local_rank) {
  State& state = *state_;
  StdinEnd end;
  state.drop(local_rank);
  if (!state.config.all && state.config.local_rank != local_rank) return end;
  if (!state.is_fed()) {
    const bool stolen = ::isatty(state.config.fd) == 1 && is_in_background(state.config.fd);
    if (!stolen) end.fd = state.config.fd;
    return end;
  }
  int fds[2];
  if (state.ended || ::pipe2(fds, O_CLOEXEC) != 0) return end;
  end.owned.reset(fds[0]);
  end.fd = fds[0];
  ::fcntl(fds[1], F_SETFL, O_NONBLOCK);
  auto pipe = std::make_shared<State::Pipe>(state.io);
  boost::system::error_code error;
  pipe->descriptor.assign(fds[1], error);
  state.pipes[local_rank] = std::move(pipe);
  state.ask();
  return end;
}

void StdinFeed::close_worker(std::uint32_t local_rank) {
  state_->drop(local_rank);
  state_->ask();
}

}  // namespace muster::agent
