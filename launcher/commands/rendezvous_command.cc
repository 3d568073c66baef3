// SPDX-License-Identifier: Apache-2.0
//
// `muster rendezvous`: a server of its own, for many jobs, that lives until it is told to stop.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "agent/shell/io_loop.h"
#include "agent/shell/signals.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/credentials.h"
#include "launcher/commands/http_pages.h"
#include "launcher/commands/node_facts.h"
#include "launcher/commands/options.h"
#include "launcher/commands/server_journal.h"
#include "launcher/commands/server_options.h"
#include "launcher/commands/small_flags.h"
#include "launcher/commands/text.h"
#include "launcher/http/job_metrics.h"
#include "launcher/rendezvous/shell/server.h"

namespace muster::launcher {
namespace {

constexpr std::string_view kHelp =
    "Usage: muster rendezvous --listen [HOST]:PORT --state-dir DIR\n"
    "                         [--http [HOST]:PORT] [--token-file FILE]\n"
    "                         [--tls-cert FILE --tls-key FILE --tls-ca FILE]\n"
    "                         [--outcome-kept D]\n"
    "\n"
    "Runs a rendezvous server of its own, for any number of jobs. Nodes reach it with\n"
    "`muster run --rdzv-endpoint HOST:PORT --rdzv-id JOB ...`. Unlike a server inside\n"
    "`muster run` it does not go down with one of the job's nodes. What it knows is\n"
    "in its state directory before it acts on it: killed or told to stop, and started\n"
    "again within the agents' --server-grace, it goes on with the same generations,\n"
    "whose workers kept running.\n"
    "\n"
    "  --listen [HOST]:PORT\n"
    "        where to listen; no HOST: every address of this machine; port 0: any\n"
    "        free one\n"
    "  --state-dir DIR\n"
    "        journal.db (SQLite); created where missing, and locked: one server at a\n"
    "        time. A damaged or newer journal is refused; move it away to begin anew\n"
    "  --http [HOST]:PORT\n"
    "        answer /livez, /readyz and /metrics (Prometheus) in plain HTTP, read\n"
    "        only\n"
    "  --token-file FILE\n"
    "        a secret, one line of FILE: without it nobody is served here, neither\n"
    "        agents (`muster run --token-file`) nor operators; MUSTER_TOKEN_FILE\n"
    "        names it too. Without any, and without TLS, a server that listens beyond\n"
    "        loopback takes no orders over the network\n"
    "  --tls-cert FILE, --tls-key FILE, --tls-ca FILE\n"
    "        speak TLS and nothing else: this server's certificate, for its name and\n"
    "        for servers and clients both, its key without a passphrase, and who must\n"
    "        vouch for the agents' and operators' certificates (PEM);\n"
    "        MUSTER_TLS_CERT, _KEY and _CA name them too. Files that change are read\n"
    "        anew\n"
    "  --outcome-kept D\n"
    "        how long a job that is over is remembered, default 1h: `muster status`\n"
    "        shows it, and an agent of it that was cut off meanwhile still reads how\n"
    "        it ended. Less than the jobs' --server-grace (60s) is too little for\n"
    "        that\n"
    "  -h, --help\n"
    "        this text\n"
    "\n"
    "Example:\n"
    "  muster rendezvous --listen :29400 --state-dir /var/lib/muster\n"
    "\n"
    "Exit codes: 0 told to stop; 2 usage, or the address or directory is in use.\n";

// Creates and locks the directory; the lock lives as long as the descriptor.
absl::StatusOr<int> lock_directory(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return absl::UnavailableError(cat(path, ": ", error.message()));
  const std::string lock = path + "/lock";
  const int file = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return absl::UnavailableError(cat(lock, ": ", std::strerror(errno)));
  if (flock(file, LOCK_EX | LOCK_NB) == 0) return file;
  const int lock_error = errno;
  close(file);
  if (lock_error == EWOULDBLOCK) {
    return absl::AlreadyExistsError(cat(path, ": another rendezvous server uses it"));
  }
  return absl::UnavailableError(cat(lock, ": ", std::strerror(lock_error)));
}

absl::StatusOr<Duration> outcome_kept_of(const SmallLine& line) {
  const std::string text = line.get("outcome-kept");
  if (text.empty()) return rendezvous::Limits().outcome_kept;
  const std::optional<Duration> kept = parse_duration(text);
  if (!kept) {
    return absl::InvalidArgumentError(
        cat("--outcome-kept ", text, ": needs a duration, such as 90s, 30m or 24h"));
  }
  const Duration grace = JobPolicy().server_grace;
  if (*kept < grace) {
    say(cat("--outcome-kept ", format_duration(*kept), " is less than the --server-grace of ",
            format_duration(grace), " that jobs have by default: an agent that is cut off as its ",
            "job ends may never learn how it ended"));
  }
  return *kept;
}

// "2 live jobs (a, b) go on without a server for …".
std::string left_behind(const std::vector<rendezvous::JobView>& jobs) {
  constexpr std::size_t kNamed = 8;
  std::size_t live = 0;
  std::string names;
  Duration grace = Duration::max();
  for (const rendezvous::JobView& job : jobs) {
    if (job.phase == rendezvous::Phase::kFinished) continue;
    if (++live <= kNamed) names += cat(live == 1 ? "" : ", ", job.spec.job);
    grace = std::min(grace, job.spec.policy.server_grace);
  }
  if (live == 0) return "no job is live";
  return cat(live, live == 1 ? " live job (" : " live jobs (", names, live > kNamed ? ", …" : "",
             live == 1 ? ") goes" : ") go", " on without a server for the --server-grace of ",
             format_duration(grace), live == 1 ? "" : " at least",
             "; start one at this address again to take over");
}

struct Settings {
  Endpoint endpoint;
  std::string state_dir;
  Duration outcome_kept{0};
  transport::Credentials credentials;
  std::optional<Endpoint> http;
};

int serve(const Settings& settings, const EnvironmentMap& environment) {
  const Endpoint& endpoint = settings.endpoint;
  const std::string& state_dir = settings.state_dir;
  const agent::StartingState start = agent::capture_starting_state();
  const std::vector<int> signals = agent::stop_signals(start);
  agent::take_signals(start, signals);
  agent::IoLoop loop;
  int exit_code = 0;

  rendezvous::ServerOptions options = server_options(environment, random_hex(16));
  options.machine.limits.outcome_kept = settings.outcome_kept;
  options.credentials = settings.credentials;
  options.say = [](const std::string& line) { say(line); };
  options.on_broken = [&](const absl::Status& status) {
    say(cat("the rendezvous server gave up: ", status.message()));
    exit_code = kExitInternal;
    loop.stop();
  };
  if (const absl::Status status = open_server_journal(state_dir, options); !status.ok()) {
    return refuse(cat("--state-dir: ", status.message()));
  }
  const std::string from_before = taken_over(options.written);
  std::optional<rendezvous::RendezvousServer> server;
  server.emplace(loop.context(), std::move(options));
  const absl::StatusOr<int> port = server->listen(endpoint.host, endpoint.port);
  if (!port.ok()) return refuse(cat("--listen ", endpoint.text(), ": ", port.status().message()));
  say(cat("rendezvous server listening on ",
          endpoint.host.empty() ? "every address, port " : cat(endpoint.host, ":"), *port,
          ", state in ", state_dir, ": ", from_before));

  bool stopping = false;
  HttpPlan pages;
  pages.http = settings.http;
  pages.unready = [&stopping] { return stopping ? "told to stop" : ""; };
  pages.render = [&server](http::MetricsText& text) { http::render_jobs(server->view(), text); };
  auto doors = open_http(loop.context(), pages);
  if (!doors.ok()) return refuse(cat(doors.status().message()));
  const agent::SignalWatch watch(loop.context(), signals, [&](const agent::SignalInfo& info) {
    if (stopping) return loop.stop();  // a second one does not wait
    stopping = true;
    say(cat("told to stop by ", signal_name(info.signal), "; ", left_behind(server->view())));
    server->close("the rendezvous server was told to stop", [&loop] { loop.stop(); });
  });
  loop.run();
  doors->clear();
  server.reset();
  return exit_code;
}

}  // namespace

int rendezvous_command(const Words& words) {
  std::vector<SmallFlag> flags = credential_flags();
  for (const char* name : {"listen", "state-dir", "outcome-kept", "http"})
    flags.push_back({name, true});
  const absl::StatusOr<SmallLine> line = parse_small("rendezvous", words, flags);
  if (!line.ok()) return refuse(cat(line.status().message()));
  if (line->has("help")) return print(kHelp) ? 0 : 1;
  if (!line->rest.empty()) return refuse_surplus("rendezvous", line->rest[0]);
  for (const char* needed : {"listen", "state-dir"}) {
    if (!line->has(needed)) {
      return refuse(cat("--", needed, " is missing; see `muster rendezvous --help`"));
    }
  }
  const absl::StatusOr<Endpoint> endpoint = parse_listen(line->get("listen"), kRendezvousPort);
  if (!endpoint.ok()) return refuse(cat("--listen: ", endpoint.status().message()));
  std::optional<Endpoint> http;
  if (line->has("http")) {
    const absl::StatusOr<Endpoint> at = parse_listen(line->get("http"));
    if (!at.ok()) return refuse(cat("--http: ", at.status().message()));
    http = *at;
  }
  const absl::StatusOr<Duration> outcome_kept = outcome_kept_of(*line);
  if (!outcome_kept.ok()) return refuse(cat(outcome_kept.status().message()));
  const absl::StatusOr<transport::Credentials> credentials = credentials_of(*line);
  if (!credentials.ok()) return refuse(cat(credentials.status().message()));
  const absl::StatusOr<int> lock = lock_directory(line->get("state-dir"));
  if (!lock.ok()) return refuse(cat("--state-dir ", lock.status().message()));
  const int code = serve({*endpoint, line->get("state-dir"), *outcome_kept, *credentials, http},
                         read_environment());
  close(*lock);
  return code;
}

}  // namespace muster::launcher
