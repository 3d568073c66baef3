// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/option_table.h"

#include <array>
#include <cctype>

#include "agent/core/line_prefix.h"
#include "launcher/commands/option_values.h"
#include "launcher/commands/options.h"

namespace muster::launcher {
namespace {

using O = RunOptions;
using P = JobPolicy;
using enum OptionGroup;
using enum OptionKind;
using enum Standing;

constexpr OptionDef ignored(std::string_view name, std::string_view why, OptionKind kind = kText,
                            bool has_pet = true) {
  return {.name = name,
          .torchrun = name,
          .standing = kIgnored,
          .kind = kind,
          .help = why,
          .has_pet = has_pet};
}

// Rows in the order of --help.
// clang-format off
constexpr auto kTable = std::to_array<OptionDef>({
    {"nnodes", "nnodes", 0, kHere, kText, kJob, "N|MIN:MAX", "1",
     "nodes of the job; with MIN:MAX it runs on any number in between", apply::nnodes},
    {"nproc-per-node", "nproc-per-node", 0, kHere, kText, kJob, "N|auto|gpu|cpu", "1",
     "workers on this node; gpu: visible devices, cpu: usable processors, auto: gpu if any, "
     "else cpu", apply::nproc},
    {"rdzv-id", "rdzv-id", 0, kHere, kText, kJob, "ID", "none",
     "job id, the same on every node; unique by itself with --standalone", apply::job_id},
    {"node-name", "", 0, kHere, kText, kJob, "NAME", "",
     "this node's name [host name, and /RANK where --node-rank is given]", apply::node_name},
    {"node-rank", "node-rank", 0, kHere, kCount, kJob, "N", "",
     "this node's place in the rank order; 0 also hosts the server where no node owns the "
     "endpoint's address", apply::node_rank},

    {"scheduler", "", 0, kHere, kText, kJob, "NAME", "auto",
     "who says which node this is: slurm, mpi, indexed-job, jobset, kubeflow, volcano, lws, none, "
     "or auto: whoever shows itself; named, also how many nodes there are and where the first one "
     "is", apply::scheduler},

    {"standalone", "standalone", 0, kHere, kSwitch, kEndpoint, "", "0",
     "one node, no server port, unique job id; overrides endpoint, id, node rank and nnodes",
     apply::toggle<&O::standalone>},
    {"rdzv-endpoint", "rdzv-endpoint", 0, kHere, kText, kEndpoint, "HOST[:PORT]", "",
     "where the rendezvous server is or will be, port 29400 if none is given",
     apply::text<&O::rdzv_endpoint>},
    {"master-addr", "master-addr", 0, kHere, kText, kEndpoint, "HOST", "",
     "the server's host, where --rdzv-endpoint is not given", apply::text<&O::master_addr>},
    {"master-port", "master-port", 0, kHere, kCount, kEndpoint, "PORT", "",
     "the server's port with --master-addr [29500]; workers get a MASTER_PORT of their own",
     apply::master_port},
    {"rdzv-backend", "rdzv-backend", 0, kHere, kText, kEndpoint, "NAME", "static",
     "static and c10d both mean Muster's own rendezvous", apply::backend},
    {"rdzv-conf", "rdzv-conf", 0, kHere, kText, kEndpoint, "K=V,...", "",
     "join_timeout, last_call_timeout, is_host, keep_alive_interval, keep_alive_max_attempt",
     apply::rdzv_conf},
    {"advertise-addr", "local-addr", 0, kHere, kText, kEndpoint, "ADDR", "",
     "this node's address for the others, MASTER_ADDR if rank 0 is here [the address the server "
     "saw]", apply::advertise_addr},
    {"master-port-range", "", 0, kHere, kText, kEndpoint, "A-B", "20000-28999",
     "where MASTER_PORT is taken from, anew for each generation", apply::master_port_range},
    {"master-port-hold", "", 0, kHere, kText, kEndpoint, "yes|no", "yes",
     "keep MASTER_PORT bound for the whole generation, so that nobody else gets it; no: let go of "
     "it before the workers start", apply::master_port_hold},
    {"token-file", "", 0, kHere, kText, kEndpoint, "FILE", "",
     "a secret, one line of FILE and the same on every node, without which the server talks to no "
     "agent and to no operator over the network", apply::text<&O::token_file>},
    {"tls-cert", "", 0, kHere, kText, kEndpoint, "FILE", "",
     "speak TLS between nodes, with this certificate (PEM, for servers and clients both); the "
     "hosting node's must be for the endpoint's name", apply::text<&O::tls_cert>},
    {"tls-key", "", 0, kHere, kText, kEndpoint, "FILE", "",
     "its private key, without a passphrase", apply::text<&O::tls_key>},
    {"tls-ca", "", 0, kHere, kText, kEndpoint, "FILE", "",
     "who vouches for the other nodes' certificates; files that change are read anew",
     apply::text<&O::tls_ca>},
    {"linger", "", 0, kHere, kSwitch, kEndpoint, "", "0",
     "a hosting node keeps its server until the job ends", apply::policy_toggle<&P::linger>},

    {"module", "module", 'm', kHere, kSwitch, kProgram, "", "0",
     "the program is a Python module: python -u -m PROGRAM", apply::toggle<&O::module>},
    {"no-python", "no-python", 0, kHere, kSwitch, kProgram, "", "0",
     "execute the program itself, whatever its name", apply::toggle<&O::no_python>},
    {"run-path", "run-path", 0, kHere, kSwitch, kProgram, "", "0",
     "the program is a Python script, whatever its name; --no-python does not count then",
     apply::toggle<&O::run_path>},
    {"python", "", 0, kHere, kText, kProgram, "PATH", "",
     "interpreter for Python programs [PYTHON_EXEC, the virtual environment's, python3, python]",
     apply::text<&O::python>},
    {"pass-local-rank", "", 0, kHere, kSwitch, kProgram, "", "0",
     "append --local-rank=N to the program's arguments", apply::toggle<&O::pass_local_rank>},
    {"no-substitute", "", 0, kHere, kSwitch, kProgram, "", "0",
     "leave the text ${local_rank} in the arguments alone", apply::toggle<&O::no_substitute>},
    {"role", "role", 0, kHere, kText, kProgram, "NAME", "default",
     "ROLE_NAME of the workers; a job has one role", apply::role},
    {"devices", "", 0, kHere, kText, kProgram, "LIST", "",
     "GPUs that every worker of this node sees, as CUDA_VISIBLE_DEVICES: indices into the list "
     "that is there already, UUIDs or MIG devices", apply::text<&O::devices>},
    {"virtual-local-rank", "virtual-local-rank", 0, kHere, kSwitch, kProgram, "", "0",
     "every worker sees one GPU, its own, and LOCAL_RANK 0", apply::toggle<&O::virtual_local_rank>},
    {"numa-binding", "numa-binding", 0, kHere, kText, kProgram, "HOW", "none",
     "which processors a worker may use, near its GPU where it has one: node, socket, core-complex "
     "(all of the nearest NUMA node, package, cache), exclusive (its own share of the NUMA node's "
     "cores) or none: as this process", apply::numa_binding, false},
    {"keep-fds", "", 0, kHere, kText, kProgram, "LIST", "",
     "open descriptors above 2 that workers get as well, like 3,5", apply::keep_fds},
    {"inherit", "", 0, kHere, kSwitch, kProgram, "", "0",
     "in a worker of another muster run: take PET_ variables and the scheduler's all the same",
     apply::toggle<&O::inherit>},

    {"max-restarts", "max-restarts", 0, kHere, kText, kFailure, "N[/WINDOW]", "0",
     "restarts of the whole job that failures may cost, in all or within any WINDOW",
     apply::max_restarts},
    {"max-node-losses", "", 0, kHere, kCount, kFailure, "N", "3",
     "lost nodes without progress in between that cost no restart in a MIN:MAX job",
     apply::max_node_losses},
    {"max-no-progress", "", 0, kHere, kCount, kFailure, "N", "0",
     "give up (exit 78) after N generations in a row in which the highest reported checkpoint "
     "step, or step where no checkpoint is reported, did not rise; 0: off",
     apply::max_no_progress},
    {"spares", "", 0, kHere, kText, kFailure, "auto|none|N", "auto",
     "nodes above MAX that may wait to take a lost node's place; one more is refused",
     apply::spares},
    {"quarantine", "", 0, kHere, kText, kFailure, "N/WINDOW,COOLDOWN", "off",
     "a node that is the first cause of N failures within WINDOW sits out for COOLDOWN, each time "
     "twice as long, where MIN is reached without it",
     apply::quarantine},
    {"hang-timeout", "", 0, kHere, kText, kFailure, "D[,FIRST]", "",
     "a worker that reports progress (MUSTER_PROGRESS_FILE; progress.h, progress.py) and makes "
     "none for D hangs: stacks are captured, it is killed, which is a failure. FIRST: until its "
     "first report [10 times D]", apply::hang_timeout},
    {"silence-timeout", "", 0, kHere, kDuration, kFailure, "D", "",
     "the same where no worker of this node has written anything for D", apply::silence_timeout},
    {"restart-backoff", "", 0, kHere, kDuration, kFailure, "MAX", "30s",
     "longest pause before a restart; the first has none, then 1s, doubling",
     apply::policy_duration<&P::restart_backoff_max>},
    {"exit-code", "", 0, kHere, kText, kFailure, "worker|flat", "worker",
     "exit with the failed worker's code, or with 1 for every failed job", apply::exit_code},

    {"stop-grace", "shutdown-timeout", 0, kHere, kDuration, kStopping, "D", "30s",
     "from a worker's first signal to SIGKILL", apply::policy_duration<&P::stop_grace>},
    {"stop-budget", "", 0, kHere, kDuration, kStopping, "D", "30s",
     "from a signal to this process to its exit; workers get min(grace, budget - 3s)",
     apply::duration<&O::stop_budget>},
    {"pod-grace", "", 0, kHere, kDuration, kStopping, "D", "30s",
     "the pod's terminationGracePeriodSeconds: in a pod the stop budget is 2s less, unless given",
     apply::duration<&O::pod_grace>},
    {"stop-signal", "", 0, kHere, kText, kStopping, "SIG|same", "same",
     "first signal to workers; same: as received, else TERM", apply::stop_signal},
    {"stop-scope", "", 0, kHere, kText, kStopping, "leader|group", "leader",
     "whom the first signal reaches; with leader, the rest of its group has it when the worker "
     "ends",
     apply::stop_scope},
    {"forward-signals", "", 0, kHere, kText, kStopping, "LIST|none", "USR1,USR2,CONT,WINCH",
     "passed on to the workers without stopping", apply::forward_signals},
    {"signals-to-handle", "signals-to-handle", 0, kHere, kText, kStopping, "LIST",
     "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
     "signals that stop the job, and reach the workers as they came; these four always do",
     apply::text<&O::signals_to_handle>},
    {"exit-grace", "", 0, kHere, kDuration, kStopping, "D", "",
     "how long processes that a worker started may run on after it ended well [--stop-grace]",
     apply::exit_grace},

    {"join-timeout", "", 0, kHere, kDuration, kTiming, "D", "600s",
     "how long to wait for MIN nodes", apply::policy_duration<&P::join_timeout, false>},
    {"last-call", "", 0, kHere, kDuration, kTiming, "D", "30s",
     "extra wait for MAX nodes once MIN are there, at the first forming and before growing",
     apply::policy_duration<&P::last_call>},
    {"grow", "", 0, kHere, kText, kTiming, "WHEN", "now",
     "when late nodes restart a job that runs below MAX: now (after the last call, at once where "
     "they fill the job), checkpoint (when the reported checkpoint step rises) or never",
     apply::grow},
    {"grow-interval", "", 0, kHere, kDuration, kTiming, "D", "60s",
     "late nodes restart the job no sooner than this after the last time they did",
     apply::policy_duration<&P::grow_interval>},
    {"fence", "", 0, kHere, kText, kTiming, "fast|strict", "fast",
     "strict: no new generation while a lost node could still run old workers (--server-grace and "
     "10s after its last sign)",
     apply::fence},
    {"heartbeat", "", 0, kHere, kDuration, kTiming, "D", "1s",
     "how often a node tells the server that it lives",
     apply::policy_duration<&P::heartbeat, false>},
    {"node-timeout", "", 0, kHere, kDuration, kTiming, "D", "10s",
     "a node silent for so long is lost", apply::policy_duration<&P::node_timeout, false>},
    {"reconnect-grace", "", 0, kHere, kDuration, kTiming, "D", "500ms",
     "a node whose connection broke may come back within this",
     apply::policy_duration<&P::reconnect_grace>},
    {"server-grace", "", 0, kHere, kDuration, kTiming, "D", "60s",
     "how long workers go on without the server; then exit 76",
     apply::policy_duration<&P::server_grace>},
    {"recovery-window", "", 0, kHere, kDuration, kTiming, "D", "30s",
     "a server that has just started declares nobody lost for so long",
     apply::policy_duration<&P::recovery_window>},

    {"stdin", "", 0, kHere, kText, kOutput, "RANK|none|all", "0",
     "which local rank reads this terminal's input", apply::stdin_choice},
    {"console", "", 0, kHere, kText, kOutput, "MODE", "auto",
     "auto, prefixed, lines, raw, pty (workers see a terminal), rank0 or none; one that nobody "
     "reads delays no rank", apply::console},
    {"log-prefix", "", 0, kHere, kText, kOutput, "TEXT", agent::kDefaultLinePrefix,
     "what begins a prefixed line: {rank}, {local_rank}, {node}, {job}, {generation} are replaced, "
     "{{ is a brace; given, --console auto means prefixed off a terminal", apply::log_prefix},
    {"local-ranks-filter", "local-ranks-filter", 0, kHere, kText, kOutput, "LIST", "",
     "show these local ranks' output only, like 0,1; files and failure reports have all",
     apply::local_ranks_filter},
    {"log-dir", "log-dir", 0, kHere, kText, kOutput, "DIR", "",
     "where logs and error files go [the user's state directory]", apply::text<&O::log_dir>},
    {"termination-log", "termination-log", 0, kHere, kText, kOutput, "FILE", "",
     "why this node ended, as JSON of 4096 bytes [/dev/termination-log if it is there]; none: off",
     apply::text<&O::termination_log>},
    {"redirects", "redirects", 'r', kHere, kText, kOutput, "0-3|MAP", "0",
     "workers' output to files instead: 1 stdout, 2 stderr, 3 both, or 0:3,1:1 by local rank",
     apply::redirects},
    {"tee", "tee", 't', kHere, kText, kOutput, "0-3|MAP", "0",
     "workers' output to files as well, in the same words", apply::tee},
    {"duplicate-stdout-filters", "duplicate-stdout-filters", 0, kHere, kText, kOutput, "LIST", "",
     "lines of any worker here with one of these texts in them also go to filtered_stdout.log, one "
     "a node and generation; ,, is a comma itself", apply::stdout_filters},
    {"duplicate-stderr-filters", "duplicate-stderr-filters", 0, kHere, kText, kOutput, "LIST", "",
     "the same of stderr, to filtered_stderr.log", apply::stderr_filters},
    {"log-rotate", "", 0, kHere, kText, kOutput, "SIZE[,N]", "off",
     "a worker's log file of SIZE, like 100MB or 1GiB, is put away as FILE.1 and begun anew; N [3] "
     "such files stay", apply::log_rotate},
    {"log-keep", "", 0, kHere, kText, kOutput, "N|AGE|SIZE|all", "20",
     "old logs of this job that stay when a run starts: so many runs, those written to within AGE "
     "(7d, 48h), or the newest in SIZE (10GB); a run that goes on stays", apply::log_keep},
    {"events", "", 0, kHere, kText, kOutput, "FILE|-", "",
     "append this node's events as JSON lines; {node}, {job}, {run} are replaced",
     apply::text<&O::events>},
    {"server-events", "", 0, kHere, kText, kOutput, "FILE", "",
     "append the whole job's events where the server is hosted", apply::text<&O::server_events>},
    {"http", "", 0, kHere, kText, kOutput, "[HOST]:PORT", "",
     "answer /livez, /readyz (200 while this node's workers run or it is a spare) and /metrics in "
     "plain HTTP, read only; port 0: any free one", apply::http},
    {"metrics-addr", "", 0, kHere, kText, kOutput, "[HOST]:PORT", "",
     "answer /metrics alone, in the text format of Prometheus", apply::metrics_addr},
    {"log-level", "", 0, kHere, kText, kOutput, "LEVEL", "warning",
     "debug (each message and order of the agent), info, warning or error, of Muster's own lines",
     apply::log_level},
    {"quiet", "", 0, kHere, kSwitch, kOutput, "", "0",
     "only errors and the final report", apply::toggle<&O::quiet>},

    {"chaos", "", 0, kHere, kText, kChaos, "FILE|JSON", "",
     "a fault plan to carry out; see `muster chaos --help`", apply::text<&O::chaos>},
    {"chaos-strict", "", 0, kHere, kSwitch, kChaos, "", "0",
     "exit 79 if a fault never fired; on by itself where CI is set",
     apply::toggle<&O::chaos_strict>},

    ignored("start-method", "workers are always started by exec"),
    ignored("monitor-interval", "the end of a worker is seen at once, nothing is polled"),
    ignored("event-log-handler", "use --events FILE"),
    ignored("logs-specs", "use --log-dir, --redirects and --tee", kText, false),
    ignored("use-env", "workers always get LOCAL_RANK in the environment; --pass-local-rank "
            "appends the argument", kSwitch, false),
});
// clang-format on

std::string variable(std::string_view prefix, std::string_view name) {
  std::string text(prefix);
  for (const char c : name) {
    text += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return text;
}

}  // namespace

std::span<const OptionDef> option_table() {
  return kTable;
}

std::string muster_variable(const OptionDef& option) {
  return variable("MUSTER_", option.name);
}

std::string pet_variable(const OptionDef& option) {
  if (option.torchrun.empty() || !option.has_pet) return {};
  return variable("PET_", option.torchrun);
}

const char* group_title(OptionGroup group) {
  switch (group) {
    case kJob: return "The job";
    case kEndpoint: return "Where nodes meet";
    case kProgram: return "The program";
    case kFailure: return "Failure";
    case kStopping: return "Stopping";
    case kTiming: return "Timing";
    case kOutput: return "Input, output, logs";
    case kChaos: return "Faults on purpose";
    case kOther: return "Other";
  }
  return "";
}

}  // namespace muster::launcher
