// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/run_job.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <optional>
#include <set>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <boost/asio/steady_timer.hpp>

#include "agent/shell/agent_runner.h"
#include "agent/shell/event_writer.h"
#include "agent/shell/faulty_link.h"
#include "agent/shell/grpc_link.h"
#include "agent/shell/guardian.h"
#include "agent/shell/io_loop.h"
#include "agent/shell/run_directory.h"
#include "agent/shell/scratch.h"
#include "agent/shell/signals.h"
#include "agent/shell/store_proxy.h"
#include "launcher/commands/agent_config.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/early_end.h"
#include "launcher/commands/endpoint_probe.h"
#include "launcher/commands/http_pages.h"
#include "launcher/commands/local_link.h"
#include "launcher/commands/node_facts.h"
#include "launcher/commands/open_files.h"
#include "launcher/commands/registry.h"
#include "launcher/commands/server_journal.h"
#include "launcher/commands/server_options.h"
#include "launcher/commands/tap_link.h"
#include "launcher/commands/text.h"
#include "launcher/http/job_metrics.h"
#include "launcher/http/node_book.h"

namespace muster::launcher {
namespace {

using rendezvous::RendezvousServer;

void extend(std::vector<int>& signals, const std::vector<int>& more) {
  signals.insert(signals.end(), more.begin(), more.end());
}

class RunJob {
 public:
  RunJob(const RunPlan& plan, const agent::Guarded& guarded)
      : plan_(plan), options_(plan.options), guarded_(guarded) {}

  int run() {
    if (!write_token()) return kExitInternal;
    // A pure question of order: declared first, gone last.
    stop_signals_ = agent::stop_signals(guarded_.start);
    extend(stop_signals_, options_.more_stop_signals);
    std::vector<int> signals = stop_signals_;
    extend(signals, options_.forward_signals);
    extend(signals, agent::job_control_signals(guarded_.start));
    if (options_.console == ConsoleChoice::kPty && !is_forwarded(SIGWINCH)) {
      signals.push_back(SIGWINCH);
    }
    signals_.emplace(loop_.context(), signals, [this](const agent::SignalInfo& info) {
      const bool typed = info.signal == SIGTSTP && info.code == SI_KERNEL;  // ^Z
      if (!typed || agent::has_job_control()) on_signal(info.signal);
    });
    if (!open_pages()) {
      // Said already.
    } else if (options_.standalone) {
      server_ = *make_server();  // keeps no journal, so nothing can be wrong with it
      start_agent();
    } else {
      look_for_server();
    }
    loop_.run();
    doors_.clear();
    runner_.reset();
    store_.reset();
    server_.reset();
    signals_.reset();
    server_events_.reset();
    live_.reset();
    agent::remove_job_folder(plan_.folder, plan_.cgroup);
    return exit_code_;
  }

 private:
  enum class Phase { kLooking, kRunning, kLingering, kEnded };

  // --http and --metrics-addr.
  bool open_pages() {
    if (!options_.http && !options_.metrics_addr) return true;
    book_.emplace(plan_.node, options_.endpoint ? options_.endpoint->text() : "this node");
    HttpPlan pages;
    pages.http = options_.http;
    pages.metrics = options_.metrics_addr;
    pages.unready = [this] { return book_->unready(); };
    pages.render = [this](http::MetricsText& text) {
      book_->render(text);
      if (server_ != nullptr) http::render_jobs(server_->view(), text);
    };
    auto doors = open_http(loop_.context(), pages);
    if (doors.ok()) {
      doors_ = *std::move(doors);
    } else {
      end_before_agent(refused(cat(doors.status().message())));
    }
    return doors.ok();
  }

  bool write_token() {
    const std::string path = agent::store_token_path(plan_.folder);
    store_token_ = random_hex(32);
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool whole = file >= 0;
    if (whole) {
      const auto size = static_cast<ssize_t>(store_token_.size());
      whole = write(file, store_token_.data(), store_token_.size()) == size;
      if (!whole && errno == 0) errno = ENOSPC;
      close(file);
    }
    if (!whole) say(cat("cannot write ", path, ": ", std::strerror(errno)));
    return whole;
  }

  // ---------------------------------------------------------------- finding the server

  void look_for_server() {
    ProbeOptions probe;
    probe.endpoint = *options_.endpoint;
    // Tells nodes on one host apart by their loopback addresses; a node alone owns them all.
    if (options_.max_nodes > 1) probe.advertise_addr = options_.advertise_addr;
    probe.explicit_rank_zero = options_.node_rank == 0U;
    probe.is_host = options_.is_host;
    probe.join_timeout = options_.policy.join_timeout;
    probe.credentials = plan_.credentials;
    probe.server_instance = instance_;
    probe.make_server = [this] { return make_server(); };
    probe.say = [this](const std::string& line) {
      if (!options_.quiet) say(line);
    };
    guardian_.emplace(loop_.context(), guarded_.guardian, guarded_.page,
                      [this](const std::string& reason) {
                        end_before_agent({kExitInternal, reason});
                      });
    probe_.emplace(loop_.context(), std::move(probe));
    probe_->start([this](ProbeResult result) {
      probe_.reset();
      guardian_.reset();
      if (phase_ != Phase::kLooking) return;
      if (result.exit_code != 0) {
        return end_before_agent({result.exit_code, result.text});
      }
      server_ = std::move(result.server);
      reached_addr_ = std::move(result.reached_addr);
      start_agent();
    });
  }

  // Only a server with other nodes to serve can be missed by anybody.
  absl::Status open_journal(rendezvous::ServerOptions& server) {
    const std::string base = log_dir_of(options_, plan_.environment);
    if (options_.standalone || options_.max_nodes == 1 || base == "/dev/null") {
      return absl::OkStatus();
    }
    const absl::StatusOr<std::string> folder = agent::make_server_folder(base, plan_.job);
    absl::Status status = folder.status();
    if (folder.ok()) status = open_server_journal(*folder, server);
    for (const rendezvous::RunRecord& run : server.written.runs) {
      if (run.job.outcome || run.job.server_left) runs_before_.insert(run.job.run);
    }
    // Whoever holds it serves this job at its endpoint, or is about to find out who does.
    constexpr int kTries = 5;
    if (absl::IsAborted(status) && ++journal_tries_ < kTries) return status;
    if (!absl::IsUnavailable(status) && !absl::IsAborted(status)) return status;
    say(cat("the server keeps its state in memory, and cannot be started again: ",
            status.message()));
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<RendezvousServer>> make_server() {
    rendezvous::ServerOptions server = server_options(plan_.environment, instance_);
    if (absl::Status status = open_journal(server); !status.ok()) return status;
    server.machine.only_job = plan_.job;
    server.credentials = plan_.credentials;
    server.say = [](const std::string& line) { say(line); };
    if (!options_.server_events.empty()) {
      server_events_.emplace(options_.server_events, plan_.node, plan_.job);
    }
    server.on_event = [this](const JobId&, const RunId& run, const JobEvent& event) {
      if (!server_events_) return;
      const absl::Status status = server_events_->write(run, event);
      if (!status.ok()) say(cat("--server-events: ", status.message()));
    };
    server.on_job_over = [this](const JobId&, const RunId& run, const Outcome&) {
      if (runs_before_.contains(run)) return;  // of an earlier process, kept for late askers
      job_over_ = true;
      if (phase_ == Phase::kLingering) end(result_->exit_code);
    };
    server.on_broken = [this](const absl::Status& status) {
      say(cat("the rendezvous server gave up: ", status.message()));
    };
    return std::make_unique<RendezvousServer>(loop_.context(), std::move(server));
  }

  // ---------------------------------------------------------------- running

  void start_agent() {
    phase_ = Phase::kRunning;
    LiveJob live{.job = plan_.job,
                 .pid = getpid(),
                 .start_ticks = start_ticks(getpid()),
                 .socket = {},
                 .rendezvous = {},
                 .node = plan_.node};
    if (options_.endpoint) live.rendezvous = options_.endpoint->text();
    if (server_ != nullptr) {
      const std::string socket = plan_.folder + "/control.sock";
      const absl::Status status = server_->listen_unix(socket);
      if (status.ok()) {
        live.socket = socket;
      } else {
        say(cat("no control socket (muster status and stop): ", status.message()));
      }
    }
    live_.emplace();
    const absl::Status published = live_->publish(registry_path(plan_.environment), live);
    if (!published.ok() && options_.log_level == LogLevel::kDebug) {
      say(cat("not listed for muster status: ", published.message()));
    }

    store_.emplace(loop_.context(), plan_.job, store_token_);
    const absl::StatusOr<std::string> store_endpoint = store_->listen();
    if (!store_endpoint.ok()) {
      say(cat("the workers' store cannot listen: ", store_endpoint.status().message()));
      end(kExitInternal);
      return;
    }

    agent::AgentConfig config = make_agent_config(plan_);
    config.store_endpoint = *store_endpoint;
    config.store_token_file = agent::store_token_path(plan_.folder);
    config.node.hosts_server = server_ != nullptr;
    if (options_.endpoint) config.endpoint = options_.endpoint->text();
    agent::RunnerOptions runner = make_runner_options(plan_, guarded_);
    runner.store = {.link_up = [this](agent::ServerLink* link) { store_->link_up(link); },
                    .link_down = [this] { store_->link_down(); },
                    .store_said = [this](const StoreReply& reply) { store_->store_said(reply); },
                    .generation_started = [this](Generation g) { store_->generation_started(g); },
                    .generation_ended = [this] { store_->generation_ended(); }};
    if (book_) runner.on_event = [this](const JobEvent& event) { book_->note(event); };
    std::unique_ptr<agent::ServerLink> link = make_link(runner);
    runner_ = std::make_unique<agent::AgentRunner>(loop_.context(), std::move(runner),
                                                   std::move(config), std::move(link));
    runner_->run([this](const agent::RunResult& result) { on_agent_done(result); });
    if (suspended_) runner_->signal(SIGTSTP);
  }

  std::unique_ptr<agent::ServerLink> make_link(agent::RunnerOptions& runner) {
    std::unique_ptr<agent::ServerLink> link;
    if (server_ != nullptr) {
      link = std::make_unique<LocalLink>(loop_.context(), *server_);
      runner.dialed_addr = [addr = reached_addr_] { return addr; };
    } else {
      agent::GrpcLinkOptions grpc;
      grpc.host = options_.endpoint->host;
      grpc.port = options_.endpoint->port;
      grpc.credentials = plan_.credentials;
      auto own = std::make_unique<agent::GrpcLink>(loop_.context(), std::move(grpc));
      // The runner, which asks, owns the link.
      runner.dialed_addr = [raw = own.get()] { return raw->dialed_addr(); };
      link = std::move(own);
    }
    if (!options_.faults.faults.empty()) {
      auto faulty = std::make_unique<agent::FaultyLink>(loop_.context(), std::move(link));
      // The runner, which asks, owns the link.
      runner.disturb_link = [raw = faulty.get()](const Fault& fault) { raw->disturb(fault); };
      link = std::move(faulty);
    }
    return std::make_unique<TapLink>(
        std::move(link),
        [this](const ServerMessage& message) {
          const auto* notice = std::get_if<JobEventNotice>(&message.body);
          if (notice == nullptr) return;
          if (std::holds_alternative<event::ChaosMissed>(notice->event.body)) fault_unfired_ = true;
        },
        [this](bool up) {
          if (book_) book_->set_connected(up);
        });
  }

  bool is_stop(int signal) const {
    return std::find(stop_signals_.begin(), stop_signals_.end(), signal) != stop_signals_.end();
  }

  bool is_forwarded(int signal) const {
    const auto& forwarded = options_.forward_signals;
    return std::find(forwarded.begin(), forwarded.end(), signal) != forwarded.end();
  }

  enum class Need { kToGoOn, kToEndWell };

  // Other nodes that would be without a server if this process ended; those that leave need none
  // to go on.
  bool others_need_us(Need need = Need::kToEndWell) const {
    if (server_ == nullptr || job_over_) return false;
    for (const rendezvous::JobView& job : server_->view()) {
      for (const rendezvous::MemberView& member : job.members) {
        const bool counts = need == Need::kToEndWell || !member.leaving;
        if (member.node != plan_.node && member.connected && counts) return true;
      }
    }
    return false;
  }

  void on_signal(int signal) {
    const bool stop = is_stop(signal);
    if (stop) ++guarded_.page->heard;
    if (phase_ != Phase::kRunning) suspend_or_resume(signal);
    switch (phase_) {
      case Phase::kLooking:
        if (!stop) return;
        return end_before_agent(
            {128 + signal, cat("stopped by ", signal_name(signal),
                               " while looking for the server at ", options_.endpoint->text())});
      case Phase::kRunning:
        if (signal == SIGWINCH && !is_forwarded(signal)) return runner_->resize_terminals();
        if (stop && !told_) told_ = signal;
        leave_if_told();
        runner_->signal(signal);
        return;
      case Phase::kLingering:
        if (!stop || leaving_) return;
        leave(signal, [this] { end(result_->exit_code); });
        return;
      case Phase::kEnded: return;
    }
  }

  // Also for those who come, or come back over a new stream, while our workers still save.
  void leave_if_told() {
    if (!told_ || options_.policy.linger || leaving_ || phase_ != Phase::kRunning) return;
    if (others_need_us(Need::kToGoOn)) return leave(*told_, [] {});
    leave_timer_.expires_after(100ms);
    leave_timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) leave_if_told();
    });
  }

  // Without an agent there are no workers: only who waits for us in a shell is to see it.
  void suspend_or_resume(int signal) {
    if (signal != SIGTSTP && signal != SIGCONT) return;
    suspended_ = signal == SIGTSTP;
    (suspended_ ? agent::suspend_guardian : agent::resume_guardian)(guarded_.guardian);
  }

  void leave(int signal, std::function<void()> done) {
    leaving_ = true;
    server_->stop(cat("node ", plan_.node, ", which hosts the server, was told to stop (",
                      signal_name(signal), ")"),
                  std::move(done));
  }

  // ---------------------------------------------------------------- ending

  void on_agent_done(const agent::RunResult& result) {
    result_ = result;
    phase_ = Phase::kLingering;
    if (server_ == nullptr || job_over_ || leaving_) return end(result.exit_code);
    const bool wait = result.outcome.has_value() || options_.policy.linger;
    if (wait) {
      watch_guardian();
      if (!result.outcome && !options_.quiet && others_need_us()) {
        say("the server stays until the job ends (--linger)");
      }
      return;
    }
    if (!others_need_us()) return end(result.exit_code);
    leaving_ = true;
    server_->stop(cat("node ", plan_.node, ", which hosts the server, has left"),
                  [this] { end(result_->exit_code); });
  }

  // The agent, which did so far, is gone.
  void watch_guardian() {
    guardian_watch_ = std::make_unique<agent::GuardianWatch>(
        loop_.context(), guarded_.guardian, guarded_.page, [this](const std::string& reason) {
          if (leaving_) return;
          leaving_ = true;
          say(reason);
          server_->stop(cat("node ", plan_.node, ", which hosts the server: ", reason),
                        [this] { end(kExitInternal); });
        });
  }

  void end_before_agent(const EarlyEnd& early) { end(end_early(plan_, early)); }

  void end(int exit_code) {
    if (phase_ == Phase::kEnded) return;
    phase_ = Phase::kEnded;
    exit_code_ = exit_code;
    if (exit_code == 0 && options_.chaos_strict && fault_unfired_) exit_code_ = kExitChaosUnfired;
    loop_.stop();
  }

  const RunPlan& plan_;
  const RunOptions& options_;
  const agent::Guarded& guarded_;
  const std::string instance_ = random_hex(16);
  std::string store_token_;
  std::vector<int> stop_signals_;

  agent::IoLoop loop_;
  std::optional<agent::SignalWatch> signals_;
  std::optional<agent::GuardianWatch> guardian_;  // while looking; the runner has its own
  std::optional<EndpointProbe> probe_;
  std::optional<EventWriter> server_events_;
  std::optional<http::NodeBook> book_;  // where somebody may ask
  std::optional<LiveEntry> live_;
  std::unique_ptr<RendezvousServer> server_;
  std::optional<agent::StoreProxy> store_;
  std::unique_ptr<agent::AgentRunner> runner_;
  std::vector<std::unique_ptr<http::HttpDoor>> doors_;

  Phase phase_ = Phase::kLooking;
  std::string reached_addr_;
  std::optional<agent::RunResult> result_;
  std::set<RunId> runs_before_;  // over when this process began
  int journal_tries_ = 0;        // that found it in use
  bool fault_unfired_ = false;   // the agent names them
  bool job_over_ = false;
  std::optional<int> told_;  // the first signal to stop
  boost::asio::steady_timer leave_timer_{loop_.context()};
  std::unique_ptr<agent::GuardianWatch> guardian_watch_;
  bool leaving_ = false;
  bool suspended_ = false;  // by SIGTSTP while there was no agent
  int exit_code_ = kExitInternal;
};

}  // namespace

int run_job(const RunPlan& plan, const agent::Guarded& guarded) {
  raise_open_files(plan.slots, plan.options.standalone ? 0 : plan.options.max_nodes);
  try {
    return RunJob(plan, guarded).run();
  } catch (const std::exception& failure) {
    // What the loop and its sources throw where the machine is out of descriptors or memory.
    return end_early(plan, {kExitInternal, cat("cannot go on: ", failure.what())});
  }
}

}  // namespace muster::launcher
