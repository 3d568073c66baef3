// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/endpoint_probe.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <netdb.h>
#include <sys/socket.h>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "launcher/commands/addresses.h"
#include "launcher/commands/text.h"
#include "launcher/rendezvous/core/hosting.h"
#include "launcher/rendezvous/shell/control_client.h"
#include "proto/transport/loop_door.h"

namespace muster::launcher {
namespace {

using Clock = std::chrono::steady_clock;
using rendezvous::HostingDecision;
using rendezvous::Listening;
using rendezvous::Seen;

constexpr Duration kFirstPause = 50ms;
constexpr Duration kLongestPause = 1s;
constexpr Duration kLookTimeout = 2s;

// With AI_NUMERICHOST in `flags` nothing is looked up and nothing blocks.
std::vector<std::string> resolve(const std::string& host, int flags) {
  addrinfo hints{};
  hints.ai_flags = flags;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  std::vector<std::string> addresses;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) return addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    std::array<char, NI_MAXHOST> text{};
    if (getnameinfo(entry->ai_addr, entry->ai_addrlen, text.data(), text.size(), nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      addresses.emplace_back(text.data());
    }
  }
  freeaddrinfo(list);
  return addresses;
}

Seen seen_from(const rendezvous::Answerer& answer, bool name_known) {
  switch (answer.kind) {
    case rendezvous::Answerer::Kind::kMuster: return Seen::kMuster;
    case rendezvous::Answerer::Kind::kStranger: return Seen::kStranger;
    case rendezvous::Answerer::Kind::kSilent: return Seen::kSilent;
    case rendezvous::Answerer::Kind::kNothing: break;
  }
  return name_known ? Seen::kNothing : Seen::kUnknownName;
}

}  // namespace

struct EndpointProbe::State : std::enable_shared_from_this<EndpointProbe::State> {
  State(boost::asio::io_context& loop, ProbeOptions chosen)
      : io(loop), options(std::move(chosen)), pause_timer(loop), report_timer(loop) {
    facts.explicit_rank_zero = options.explicit_rank_zero;
    facts.is_host = options.is_host;
  }
  ~State() { door->close(); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void next() {
    if (stopped) return;
    facts.deadline_passed = Clock::now() >= deadline;
    const HostingDecision decision = rendezvous::decide_hosting(facts);
    why = decision.why;
    switch (decision.what) {
      case HostingDecision::Do::kLook:
      case HostingDecision::Do::kDialBack:
        if (decision.again) {
          pause();
        } else {
          resolve_then_look();
        }
        return;
      case HostingDecision::Do::kListen: return listen();
      case HostingDecision::Do::kJoin: server.reset(); return finish(0, "");
      case HostingDecision::Do::kHost: return finish(0, "");
      case HostingDecision::Do::kRefuse: return finish(decision.exit_code, refusal());
    }
  }

  void pause() {
    const Duration left =
        std::max(Duration{0}, std::chrono::duration_cast<Duration>(deadline - Clock::now()));
    pause_timer.expires_after(std::min(pause_length, left));
    pause_length = std::min(2 * pause_length, kLongestPause);
    pause_timer.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
      const auto state = weak.lock();
      if (error || state == nullptr) return;
      state->resolve_then_look();
    });
  }

  void resolve_then_look() {
    if (stopped) return;
    std::vector<std::string> numeric = resolve(options.endpoint.host, AI_NUMERICHOST);
    if (!numeric.empty()) return take_addresses(std::move(numeric));
    std::thread([weak = weak_from_this(), host = options.endpoint.host, door = door] {
      std::vector<std::string> found = resolve(host, 0);
      door->post([weak, found = std::move(found)]() mutable {
        const auto state = weak.lock();
        if (state != nullptr && !state->stopped) state->take_addresses(std::move(found));
      });
    }).detach();
  }

  void take_addresses(std::vector<std::string> found) {
    addresses = std::move(found);
    own = own_addresses();
    facts.owns_address = owns_endpoint(addresses, own, options.advertise_addr);
    ++looks;
    rendezvous::ControlTarget target;
    target.host = options.endpoint.host;
    target.port = options.endpoint.port;
    target.credentials = options.credentials;
    const Duration left =
        std::max<Duration>(100ms, std::chrono::duration_cast<Duration>(deadline - Clock::now()));
    looking = rendezvous::probe_async(io, target, std::min(kLookTimeout, left),
                                      [weak = weak_from_this()](rendezvous::Answerer answer) {
                                        const auto state = weak.lock();
                                        if (state != nullptr) state->take_answer(answer);
                                      });
  }

  void take_answer(const rendezvous::Answerer& answer) {
    if (stopped) return;
    last_answer = answer.text;
    if (!answer.addr.empty()) reached_addr = answer.addr;
    const bool ours = answer.server.server_instance == options.server_instance;
    if (answer.unauthenticated && !ours) return finish(2, answer.text);
    const Seen seen = seen_from(answer, !addresses.empty());
    if (server != nullptr) {
      facts.seen_back = seen;
      facts.own_instance = ours;
    } else {
      facts.seen = seen;
    }
    next();
  }

  void listen() {
    absl::StatusOr<std::unique_ptr<rendezvous::RendezvousServer>> made = options.make_server();
    if (absl::IsAborted(made.status())) {
      listen_error = cat(made.status().message());
      facts.seen = Seen::kNotLooked;
      facts.listening = Listening::kFailed;
      return next();
    }
    if (!made.ok()) return finish(2, cat(made.status().message()));
    server = *std::move(made);
    const std::string host = listen_host(options.endpoint.host, addresses, own);
    const absl::StatusOr<int> port = server->listen(host, options.endpoint.port);
    if (port.ok()) {
      facts.listening = Listening::kYes;
      facts.seen_back = Seen::kNotLooked;
      pause_length = kFirstPause;
    } else {
      server.reset();
      listen_error = cat(port.status().message());
      facts.seen = Seen::kNotLooked;
      facts.listening = absl::IsAlreadyExists(port.status())      ? Listening::kAddressInUse
                        : absl::IsPermissionDenied(port.status()) ? Listening::kNotPermitted
                                                                  : Listening::kFailed;
    }
    next();
  }

  std::string describe() const {
    const Seen seen = server != nullptr ? facts.seen_back : facts.seen;
    const std::string found = last_answer.empty() ? in_words(seen) : last_answer;
    std::string text = cat(options.endpoint.text(), ": ", in_words(why), " (last look: ", found);
    if (!listen_error.empty()) text += cat("; listening: ", listen_error);
    return text + ")";
  }

  std::string refusal() const {
    return cat("no server found within --join-timeout ", format_duration(options.join_timeout),
               ": ", describe());
  }

  void report_later() {
    report_timer.expires_after(options.report_every);
    report_timer.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
      const auto state = weak.lock();
      if (error || state == nullptr || state->stopped) return;
      const auto waited =
          std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - state->started);
      state->options.say(cat("looking for the server at ", state->describe(), "; ", state->looks,
                             " looks in ", waited.count(), "s of ",
                             format_duration(state->options.join_timeout)));
      state->report_later();
    });
  }

  void finish(int exit_code, std::string text) {
    stopped = true;
    pause_timer.cancel();
    report_timer.cancel();
    looking.reset();
    if (exit_code != 0) server.reset();
    ProbeResult result{.server = std::move(server),
                       .reached_addr = reached_addr,
                       .exit_code = exit_code,
                       .text = std::move(text)};
    // Through the loop: the caller may destroy us in it.
    boost::asio::post(
        io, [done = std::move(done), kept = std::make_shared<ProbeResult>(std::move(result))] {
          done(std::move(*kept));
        });
  }

  boost::asio::io_context& io;
  std::shared_ptr<transport::LoopDoor> door = std::make_shared<transport::LoopDoor>(io);
  ProbeOptions options;
  boost::asio::steady_timer pause_timer;
  boost::asio::steady_timer report_timer;
  Clock::time_point started;
  Clock::time_point deadline;
  rendezvous::HostingFacts facts;
  HostingDecision::Why why = HostingDecision::Why::kNotLookedYet;
  Duration pause_length = kFirstPause;
  std::vector<std::string> addresses;  // of the endpoint, as last resolved
  std::vector<std::string> own;        // of this machine
  std::string reached_addr;
  std::string last_answer;
  std::string listen_error;
  unsigned looks = 0;
  bool stopped = false;
  std::unique_ptr<rendezvous::Probe> looking;
  std::unique_ptr<rendezvous::RendezvousServer> server;
  std::function<void(ProbeResult)> done;
};

EndpointProbe::EndpointProbe(boost::asio::io_context& io, ProbeOptions options)
    : state_(std::make_shared<State>(io, std::move(options))) {}

EndpointProbe::~EndpointProbe() {
  state_->stopped = true;
  state_->looking.reset();
  state_->server.reset();
}

void EndpointProbe::start(std::function<void(ProbeResult)> done) {
  state_->done = std::move(done);
  state_->started = Clock::now();
  state_->deadline = state_->started + state_->options.join_timeout;
  state_->report_later();
  state_->next();
}

std::string EndpointProbe::describe() const {
  return state_->describe();
}

}  // namespace muster::launcher
