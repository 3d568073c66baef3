// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/options.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "agent/core/environment.h"
#include "launcher/commands/option_help.h"
#include "launcher/commands/option_table.h"
#include "launcher/commands/text.h"
#include "tests/unit/launcher/resolved.h"

namespace muster::launcher {

TEST_CASE("dash, underscore, equals sign and separate value are one") {
  for (const Words& words :
       {Words{"--nproc-per-node", "3"}, Words{"--nproc_per_node", "3"}, Words{"--nproc-per-node=3"},
        Words{"--nproc_per-node=3"}, Words{"--nproc=3"}, Words{"--nproc", "3"}}) {
    const Result result = resolve(words);
    INFO(words[0] << ": " << result.error);
    REQUIRE(result.ok);
    CHECK(result.options.nproc == "3");
  }
}

TEST_CASE("everything from the program on is left alone") {
  const Result result =
      resolve({"--nproc-per-node", "2", "train.py", "--nnodes", "9", "--", "-x", ""}, {}, false);
  REQUIRE(result.ok);
  CHECK(result.options.max_nodes == 1);
  CHECK(result.options.program == Words{"train.py", "--nnodes", "9", "--", "-x", ""});
}

TEST_CASE("two dashes end the options") {
  const Result result = resolve({"--standalone", "--", "--odd-name", "--", "-h"}, {}, false);
  REQUIRE(result.ok);
  CHECK(result.options.program == Words{"--odd-name", "--", "-h"});
}

TEST_CASE("prefixes count torchrun's flags only") {
  CHECK(resolve({"--nnode", "1"}).ok);
  CHECK(resolve({"--master-p", "1234"}).ok);  // --master-port-range is not torchrun's
  CHECK(error_of({"--no"}).find("--node-rank, --no-python") != std::string::npos);
  CHECK(error_of({"--log", "x"}).find("ambiguous") != std::string::npos);  // --logs-specs counts
  CHECK(error_of({"--stop-gr", "1s"}) == "unknown flag --stop-gr; did you mean --stop-grace?");
  CHECK(resolve({"--shutdown", "5"}).options.policy.stop_grace == 5s);
}

TEST_CASE("short flags") {
  CHECK(resolve({"-r", "3"}).options.redirects.everyone == 3);
  CHECK(resolve({"-r3"}).options.redirects.everyone == 3);
  CHECK(resolve({"-t=0:3,12:1"}).options.tee.of(12) == 1);
  CHECK(resolve({"-t=0:3,12:1"}).options.tee.of(1) == 0);
  CHECK(resolve({"-m"}).options.module);
  CHECK(error_of({"-mfoo"}).find("unknown flag -mfoo") == 0);
  CHECK(error_of({"-z"}).find("unknown flag -z") == 0);
}

TEST_CASE("unknown flags name the nearest") {
  CHECK(error_of({"--nprocs-per-node", "2"}) ==
        "unknown flag --nprocs-per-node; did you mean --nproc-per-node?");
  CHECK(error_of({"--stop_grase=1s"}) == "unknown flag --stop_grase; did you mean --stop-grace?");
  CHECK(error_of({"--zzzzzzzzzz"}).find("`muster run --help` lists them") != std::string::npos);
}

TEST_CASE("when late nodes restart a running job") {
  CHECK(resolve({}).options.policy.grow == Grow::kNow);
  CHECK(resolve({}).options.policy.grow_interval == 60s);
  const Result result = resolve({"--grow=checkpoint", "--grow-interval", "5m"});
  CHECK(result.options.policy.grow == Grow::kCheckpoint);
  CHECK(result.options.policy.grow_interval == 300s);
  CHECK(resolve({}, {{"MUSTER_GROW", "never"}}).options.policy.grow == Grow::kNever);
  CHECK(error_of({"--grow", "later"}) == "--grow: 'later' is not one of now, checkpoint, never");
}

TEST_CASE("how long a job may stand still") {
  CHECK(resolve({}).options.policy.max_no_progress == 0);
  CHECK(resolve({"--max-no-progress", "4"}).options.policy.max_no_progress == 4);
  CHECK(error_of({"--max-no-progress", "-1"}) == "--max-no-progress: '-1' is not a number");
}

TEST_CASE("when a node sits out") {
  CHECK(resolve({}).options.policy.quarantine == Quarantine{});
  CHECK(resolve({"--quarantine", "off"}).options.policy.quarantine == Quarantine{});
  CHECK(resolve({"--quarantine", "3/1h,10m"}).options.policy.quarantine ==
        Quarantine{3, 3600s, 600s});
  for (const char* wrong : {"3", "0/1h,10m", "3/1h", "3,1h/10m", "x/1h,1m", "5000/1h,1m"}) {
    CHECK(error_of({"--quarantine", wrong}) ==
          cat("--quarantine: '", wrong, "' is not off or N/WINDOW,COOLDOWN, like 3/1h,10m"));
  }
  CHECK(error_of({"--quarantine", "3/1h,0"}) == "--quarantine: must be more than zero");
}

TEST_CASE("how lost nodes are fenced off") {
  CHECK(resolve({}).options.policy.fence == Fence::kFast);
  CHECK(resolve({"--fence", "strict"}).options.policy.fence == Fence::kStrict);
  CHECK(error_of({"--fence", "slow"}) == "--fence: 'slow' is not one of fast, strict");
}

TEST_CASE("how many nodes may wait above MAX") {
  CHECK_FALSE(resolve({}).options.policy.max_spares.has_value());
  CHECK_FALSE(resolve({"--spares", "auto"}).options.policy.max_spares.has_value());
  CHECK(resolve({"--spares", "none"}).options.policy.max_spares == 0U);
  CHECK(resolve({"--spares=2"}).options.policy.max_spares == 2U);
  CHECK(error_of({"--spares=-1"}) == "--spares: '-1' is not auto, none or a number");
}

TEST_CASE("where probes and Prometheus are answered") {
  CHECK_FALSE(resolve({}).options.http.has_value());
  CHECK(resolve({"--http", ":80"}).options.http == Endpoint{.host = "", .port = 80});
  CHECK(resolve({"--http", "80"}).options.http == Endpoint{.host = "", .port = 80});
  CHECK(resolve({"--metrics_addr=[::1]:0"}).options.metrics_addr ==
        Endpoint{.host = "::1", .port = 0});
  CHECK(error_of({"--http", "h0"}) == "--http: 'h0' has no port; [HOST]:PORT is wanted");
  CHECK(error_of({"--http", "::1"}) == "--http: '::1' has no port from 0 to 65535");
  CHECK(error_of({"--http=99999"}) == "--http: '99999' has no port from 0 to 65535");
}

TEST_CASE("how workers are bound to processors") {
  CHECK(resolve({}).options.numa_binding == NumaBinding::kNone);
  CHECK(resolve({"--numa-binding", "node"}).options.numa_binding == NumaBinding::kNode);
  CHECK(resolve({"--numa_b=core-complex"}).options.numa_binding == NumaBinding::kCoreComplex);
  CHECK(error_of({"--numa-binding=all"}) ==
        "--numa-binding: 'all' is not one of none, node, socket, exclusive, core-complex");
}

TEST_CASE("what a scheduler says makes no job of several nodes by itself") {
  const EnvironmentMap slurm{{"SLURM_JOB_ID", "7"},
                             {"SLURM_NODEID", "1"},
                             {"SLURM_NNODES", "4"},
                             {"SLURM_NODELIST", "gpu[08-11]"}};
  const Result alone = resolve({}, slurm);
  CHECK(alone.options.max_nodes == 1);
  CHECK(has_note(alone,
                 "but this is a job of one node: --rdzv-endpoint, --nnodes or --scheduler "
                 "slurm make it one of all"));
  const Result met = resolve({"--rdzv-endpoint=gpu08:1234"}, slurm);
  CHECK(met.options.max_nodes == 4);
  CHECK(met.options.scheduler_index == 1U);
  CHECK(met.options.scheduler_strips_pmi);
  const Result named = resolve({"--scheduler", "slurm"}, slurm);
  CHECK(named.options.max_nodes == 4);
  CHECK(named.options.endpoint->text() == "gpu08:29400");
  CHECK(resolve({"--nnodes=2", "--rdzv-endpoint=a:1"}, slurm).options.max_nodes == 2);
  CHECK(resolve({"--scheduler=none"}, slurm).line.notes.empty());
  CHECK_FALSE(resolve({"--scheduler=none"}, slurm).options.scheduler_index);
  CHECK(resolve({"--standalone"}, slurm).line.notes.empty());
  EnvironmentMap inside = slurm;
  inside["MUSTER_GENERATION"] = "0";
  CHECK_FALSE(resolve({}, inside).options.scheduler_index);
  CHECK(error_of({"--scheduler=lws"}, slurm) ==
        "--scheduler lws: it did not start this process (LWS_WORKER_INDEX is not set)");
  CHECK(error_of({"--scheduler=pbs"}) ==
        "--scheduler: 'pbs' is not one of auto, none, slurm, kubeflow, jobset, lws, volcano, "
        "indexed-job, mpi");
}

TEST_CASE("the role of the workers") {
  CHECK(resolve({}).options.role == "default");
  CHECK(resolve({"--role", "trainer"}).options.role == "trainer");
  CHECK(resolve({}, {{"PET_ROLE", "x"}}).options.role == "x");
  CHECK(error_of({"--role="}) == "--role: the name is empty");
}

TEST_CASE("descriptors that workers get as well") {
  CHECK(resolve({}).options.keep_fds.empty());
  CHECK(resolve({"--keep-fds", "7,3,7"}).options.keep_fds == std::vector<int>{3, 7});
  CHECK(error_of({"--keep-fds=3,x"}) == "--keep-fds: 'x' is not the number of a descriptor");
  CHECK(error_of({"--keep-fds=-4"}) == "--keep-fds: '-4' is not the number of a descriptor");
  CHECK(error_of({"--keep-fds=2"}) ==
        "--keep-fds: 2 is one of the worker's own streams; see --stdin and --console");
}

TEST_CASE("when a worker hangs") {
  CHECK_FALSE(resolve({}).options.hang_timeout);
  const Result plain = resolve({"--hang-timeout", "30s"});
  CHECK(plain.options.hang_timeout == 30s);
  CHECK(plain.options.hang_first == 300s);
  CHECK(resolve({"--hang-timeout=30s,10m"}).options.hang_first == 600s);
  CHECK(resolve({"--silence-timeout=5m"}).options.silence_timeout == 300s);
  for (const char* bad : {"0", "soon", "1s,", "1s,0", "1s,2s,3s"}) {
    INFO(bad);
    CHECK(error_of({cat("--hang-timeout=", bad)}).starts_with("--hang-timeout: "));
  }
  CHECK(error_of({"--silence-timeout=1m", "--console=raw"}) ==
        "--silence-timeout needs to see what workers write, and --console raw gives them this "
        "process's own descriptors; use lines");
}

TEST_CASE("whether the master port is held") {
  CHECK(resolve({}).options.master_port_hold);
  CHECK_FALSE(resolve({"--master-port-hold", "no"}).options.master_port_hold);
  CHECK(error_of({"--master-port-hold=0"}) == "--master-port-hold: '0' is not one of yes, no");
}

TEST_CASE("--run-path says that the program is a script") {
  CHECK(resolve({}, {{"PET_RUN_PATH", "1"}}).options.run_path);
  CHECK(has_note(resolve({"--run-path", "--no-python"}),
                 "--no-python is ignored: --run-path is given"));
  CHECK(error_of({"--run-path", "-m"}) == "--module and --run-path exclude each other");
}

TEST_CASE("a worker's own muster run takes what was meant for the outer one where asked to") {
  const EnvironmentMap outer{{"MUSTER_GENERATION", "0"}, {"PET_NNODES", "3"}};
  const Result alone = resolve({}, outer);
  CHECK(alone.options.max_nodes == 1);
  CHECK(alone.line.nested);
  CHECK(has_note(alone, "inherited PET_ variables are ignored (--inherit takes them)"));
  EnvironmentMap asks = outer;
  asks["MUSTER_INHERIT"] = "yes";
  for (const Result& result : {resolve({"--inherit", "--rdzv-endpoint=h:1"}, outer),
                               resolve({"--rdzv-endpoint=h:1"}, asks)}) {
    CHECK(result.options.max_nodes == 3);
    CHECK_FALSE(result.line.nested);
  }
}

TEST_CASE("what torchrun ignores gets one line") {
  const Result result = resolve({"--start-method", "fork", "--use-env", "--logs-specs=x"},
                                {{"PET_EVENT_LOG_HANDLER", "console"}});
  REQUIRE(result.ok);
  CHECK(result.line.notes.size() == 4);
  CHECK(has_note(result, "--start-method is ignored: "));
  CHECK(has_note(result, "PET_EVENT_LOG_HANDLER is ignored: use --events FILE"));
}

TEST_CASE("values and switches are told apart") {
  CHECK(error_of({"--standalone=1"}) == "--standalone takes no value");
  const Result result = resolve({"--nnodes"}, {}, false);
  CHECK(result.error == "--nnodes needs a value");
  CHECK(resolve({"--nnodes", "--standalone"}).error == "--nnodes needs a value");
  CHECK(resolve({"--events", "-"}).options.events == "-");
  CHECK(error_of({"--node-rank", "1"}) ==
        "--node-rank 1 is out of range: --nnodes 1 has node rank 0 alone");
  CHECK(error_of({"--nnodes", "2:4", "--rdzv-endpoint", "h:1", "--node-rank", "4"}) ==
        "--node-rank 4 is out of range: --nnodes 2:4 has node ranks 0 to 3");
  CHECK(resolve({"--nnodes", "2:4", "--rdzv-endpoint", "h:1", "--node-rank", "3"}).ok);
  CHECK(error_of({"--node-rank", "-1"}) == "--node-rank: '-1' is not a number from 0");
}

TEST_CASE("flag beats MUSTER_ beats PET_ beats default") {
  const EnvironmentMap pet{{"PET_MAX_RESTARTS", "1"}};
  const EnvironmentMap both{{"PET_MAX_RESTARTS", "1"}, {"MUSTER_MAX_RESTARTS", "2"}};
  CHECK(source(resolve({}), "max-restarts") == "default");
  CHECK(source(resolve({}, pet), "max-restarts") == "PET_MAX_RESTARTS");
  const Result two = resolve({}, both);
  CHECK(two.options.policy.max_restarts == 2);
  CHECK(source(two, "max-restarts") == "MUSTER_MAX_RESTARTS");
  const Result three = resolve({"--max-restarts=3"}, both);
  CHECK(three.options.policy.max_restarts == 3);
  CHECK(source(three, "max-restarts") == "flag");
}

TEST_CASE("variables: nonsense is named, empty is unset") {
  CHECK(error_of({}, {{"PET_NNODES", "two"}}) ==
        "PET_NNODES: 'two' is not N or MIN:MAX with 0 < MIN <= MAX");
  CHECK(error_of({}, {{"MUSTER_STOP_GRACE", "soon"}}) ==
        "MUSTER_STOP_GRACE: 'soon' is not a duration like 500ms, 30s, 5m, 1h or 2.5");
  CHECK(error_of({}, {{"PET_NO_PYTHON", "maybe"}}) == "PET_NO_PYTHON: 'maybe' is not 0 or 1");
  CHECK(resolve({}, {{"PET_NNODES", ""}, {"PET_RDZV_ENDPOINT", ""}}).ok);
  // A flag makes a bad variable harmless, as with torchrun.
  CHECK(resolve({"--nnodes=1"}, {{"PET_NNODES", "two"}}).ok);
}

TEST_CASE("help comes whatever the variables say") {
  const auto line = parse_command_line({"--help"}, {{"PET_ROLE", "x"}, {"PET_NNODES", "?"}});
  REQUIRE(line.ok());
  CHECK(line->help);
}

TEST_CASE("no option's variable is one that workers are given") {
  for (const std::string& variable : option_variables()) {
    INFO(variable);
    for (const std::string_view given : agent::kVariablesOfWorkers)
      CHECK(variable != given);
  }
}

TEST_CASE("Kubeflow's spellings") {
  CHECK(resolve({}, {{"PET_STANDALONE", ""}}).options.standalone);
  CHECK(resolve({}, {{"PET_N_PROC_PER_NODE", "4"}}).options.nproc == "4");
  const EnvironmentMap both{{"PET_N_PROC_PER_NODE", "4"}, {"PET_NPROC_PER_NODE", "2"}};
  CHECK(resolve({}, both).options.nproc == "2");
  const Result pod = resolve({}, {{"PET_NNODES", "1:2"},
                                  {"PET_RDZV_ENDPOINT", "job-worker-0:23456"},
                                  {"PET_RDZV_BACKEND", "c10d"},
                                  {"PET_RDZV_ID", "job"},
                                  {"PET_RDZV_CONF", "timeout=900,is_host=1"}});
  REQUIRE(pod.ok);
  CHECK(pod.options.endpoint == Endpoint{"job-worker-0", 23456});
  CHECK(pod.options.is_host == true);
  CHECK(pod.options.min_nodes == 1);
  CHECK(pod.options.max_nodes == 2);
}

TEST_CASE("a launcher inside a worker ignores inherited PET_ variables") {
  const Result result =
      resolve({}, {{"MUSTER_GENERATION", "0"}, {"PET_NNODES", "4"}, {"PET_ROLE", "x"}});
  REQUIRE(result.ok);
  CHECK(result.options.max_nodes == 1);
  CHECK(has_note(result, "inherited PET_ variables are ignored"));
  CHECK(resolve({}, {{"MUSTER_GENERATION", "0"}}).line.notes.empty());
}

TEST_CASE("standalone overrides what speaks of others") {
  const Result result = resolve({"--standalone", "--nnodes", "2", "--rdzv-endpoint", "h:1",
                                 "--rdzv-id", "j", "--node-rank", "3"});
  REQUIRE(result.ok);
  CHECK(result.options.standalone);
  CHECK(result.options.max_nodes == 1);
  CHECK_FALSE(result.options.endpoint);
  CHECK_FALSE(result.options.node_rank);
  CHECK(result.options.job_id.empty());
  CHECK(has_note(result, "--standalone overrides --nnodes 2"));
  CHECK(has_note(result, "--standalone overrides --rdzv-endpoint h:1"));
  CHECK(has_note(result, "--standalone overrides --rdzv-id j"));
  CHECK(has_note(result, "--standalone overrides --node-rank 3"));
}

TEST_CASE("where the server is") {
  CHECK(resolve({}).options.standalone);
  CHECK(resolve({"--rdzv-id", "mine"}).options.job_id == "mine");
  CHECK(resolve({"--rdzv-endpoint", "h:0"}).options.standalone);
  CHECK(resolve({"--rdzv-endpoint", "h"}).options.endpoint == Endpoint{"h", 29400});
  CHECK(resolve({"--master-addr", "h"}).options.endpoint == Endpoint{"h", 29500});
  CHECK(resolve({"--master-addr", "h", "--master-port", "7"}).options.endpoint == Endpoint{"h", 7});
  CHECK(has_note(resolve({"--master-port", "29501"}), "--master-port is ignored"));
  CHECK(error_of({"--nnodes", "2"}).find("needs --rdzv-endpoint") != std::string::npos);
  CHECK(error_of({"--nnodes", "1:2", "--master-port=3"}).find("needs --rdzv-endpoint") !=
        std::string::npos);
  CHECK(error_of({"--nnodes=2", "--rdzv-endpoint", "h:0"}).find("port 0") != std::string::npos);
  CHECK(error_of({"--nnodes=2", "--rdzv-endpoint", ":29400"}).find("names no host") !=
        std::string::npos);
  const Result both = resolve({"--rdzv-endpoint=h:1", "--master-addr=i"});
  CHECK(both.options.endpoint == Endpoint{"h", 1});
  CHECK(has_note(both, "--master-addr is ignored"));
  CHECK(resolve({"--nnodes=2", "--rdzv-endpoint=h:1"}).options.job_id == "none");
}

TEST_CASE("endpoints") {
  CHECK(*parse_endpoint("[::1]:5", 1) == Endpoint{"::1", 5});
  CHECK(*parse_endpoint("[fe80::2]", 1) == Endpoint{"fe80::2", 1});
  CHECK(*parse_endpoint("::1", 1) == Endpoint{"::1", 1});
  CHECK(*parse_endpoint("[fe80::2%eth0]:5", 1) == Endpoint{"fe80::2%eth0", 5});
  CHECK(Endpoint{"::1", 5}.text() == "[::1]:5");
  for (const char* bad : {"",       ":1",        "h:",          "h:65536", "h:x",         "[::1",
                          "[::1]x", "h h:1",     "a@b:1",       "h:-1",    "http://h:1",  "a:b:c",
                          "[h]:1",  "1:2:3",     ":::",         "[:::]:5", "[1.2.3.4]:5", "-x",
                          "x-:1",   "1.2.3.4.5", "1.2.3.256",   "127.1",   "5",           ".",
                          "a..b",   ".a:1",      "h\xc3\xa4:1", "h!",      "[fe80::1%]:5"}) {
    INFO(bad);
    CHECK_FALSE(parse_endpoint(bad, 1).ok());
  }
  CHECK_FALSE(parse_endpoint(std::string(64, 'a'), 1).ok());
  for (const char* good : {"a", "node_0", "node-0.rack-1.example.org.", "10.0.0.1", "3com.example",
                           "1.2.3.4.example", "a--b"}) {
    INFO(good);
    CHECK(*parse_endpoint(cat(good, ":7"), 1) == Endpoint{good, 7});
  }
}

TEST_CASE("an endpoint that cannot be one is refused under the name it came by") {
  CHECK(error_of({"--rdzv-endpoint=-x"}) ==
        "--rdzv-endpoint: '-x' is not HOST:PORT: '-x' is neither a host's name nor an address");
  CHECK(error_of({}, {{"PET_RDZV_ENDPOINT", ":::"}}) ==
        "PET_RDZV_ENDPOINT: ':::' is neither HOST:PORT nor an IPv6 address");
  CHECK(error_of({}, {{"PET_MASTER_ADDR", "1.2.3.4.5"}}).starts_with("PET_MASTER_ADDR: "));
  for (const char* bad : {"-x", "1.2.3.4.5", ":::", "h:1", "", "a b", "[h]"}) {
    INFO(bad);
    const std::string error = error_of({cat("--advertise-addr=", bad)});
    CHECK(error == cat("--advertise-addr: '", bad, "' is not an address or a host's name"));
  }
}

TEST_CASE("backends") {
  CHECK(resolve({"--rdzv-backend", "c10d"}).ok);
  CHECK(resolve({"--rdzv-backend", "static"}).ok);
  CHECK(error_of({"--rdzv-backend", "etcd-v2"}).find("`muster rendezvous`") != std::string::npos);
  CHECK(error_of({"--rdzv-backend", "mpi"}).find("is not static or c10d") != std::string::npos);
}

TEST_CASE("rdzv-conf maps to our options") {
  const Result result = resolve({"--rdzv-conf",
                                 "join_timeout=20,last_call_timeout=3,read_timeout="
                                 "7,keep_alive_interval=2"});
  REQUIRE(result.ok);
  CHECK(result.options.policy.join_timeout == 20s);
  CHECK(result.options.policy.last_call == 3s);
  CHECK(result.options.policy.node_timeout == 6s);
  CHECK(source(result, "node-timeout") == "--rdzv-conf");
  const Result own = resolve({"--rdzv-conf=join_timeout=20", "--join-timeout=9s"});
  CHECK(own.options.policy.join_timeout == 9s);
  CHECK(has_note(own, "overrides the 20s of --rdzv-conf"));
  CHECK(error_of({"--rdzv-conf=join_timeot=1"}).find("did you mean join_timeout?") !=
        std::string::npos);
  CHECK(error_of({"--rdzv-conf=is_host=perhaps"}).find("is_host: 'perhaps'") != std::string::npos);
  CHECK(error_of({"--rdzv-conf=join_timeout"}).find("is not KEY=VALUE") != std::string::npos);
  CHECK(error_of({"--rdzv-conf=keep_alive_max_attempt=0"}).find("keep_alive_max_attempt") !=
        std::string::npos);
}

TEST_CASE("contradictory times") {
  CHECK(error_of({"--node-timeout=1s", "--heartbeat=1s"}) ==
        "--node-timeout 1s must be more than --heartbeat 1s");
  CHECK(error_of({"--heartbeat=0"}) == "--heartbeat: must be more than zero");
  CHECK(error_of({"--reconnect-grace=11s"}).find("must be at most") != std::string::npos);
  CHECK(has_note(resolve({"--node-timeout=2s"}), "less than three heartbeats"));
  CHECK(has_note(resolve({"--stop-grace=60s"}), "workers get only 27s"));
  CHECK(resolve({"--stop-grace=20s"}).line.notes.empty());
}

TEST_CASE("a stop budget that leaves workers less than they were promised") {
  const Result less = resolve({"--stop-grace=60s", "--stop-budget=30s"});
  CHECK(less.line.notes == Words{"--stop-grace 1m: when this process itself is signalled workers "
                                 "get only 27s (--stop-budget 30s less 3s)"});
  for (const char* budget : {"0", "2s", "3s"}) {
    INFO(budget);
    CHECK(has_note(resolve({cat("--stop-budget=", budget)}),
                   "when this process itself is signalled workers get 0s and are killed at once"));
  }
  CHECK(resolve({"--stop-budget=4s"}).line.notes.empty());
  CHECK(resolve({"--stop-budget=2s", "--stop-grace=0"}).line.notes.empty());
  CHECK(resolve({}).line.notes.empty());
}

TEST_CASE("a server grace that healthy connections would use up") {
  const Words node{"--nnodes=1:2", "--rdzv-endpoint=h:1"};
  const auto with = [&](Words words) {
    words.insert(words.end(), node.begin(), node.end());
    return words;
  };
  const Words heartbeat{"--heartbeat=3s", "--node-timeout=9s"};
  for (const Words& place : {node, Words{"--standalone"}}) {
    Words words = heartbeat;
    words.emplace_back("--server-grace=5s");
    words.insert(words.end(), place.begin(), place.end());
    CHECK(error_of(words) == "--server-grace 5s must be at least twice --heartbeat 3s");
  }
  CHECK(error_of(with({"--heartbeat=31s", "--node-timeout=100s"})) ==
        "--server-grace 1m must be at least twice --heartbeat 31s");
  CHECK(resolve({"--standalone", "--heartbeat=31s", "--node-timeout=100s"}).line.notes.empty());
  CHECK(has_note(resolve(with({"--server-grace=2s"})),
                 "--server-grace 2s is shorter than --node-timeout 10s"));
  CHECK(resolve(with({"--server-grace=10s"})).line.notes.empty());
}

TEST_CASE("a last call longer than the wait for the least") {
  CHECK(has_note(resolve({"--nnodes=1:2", "--rdzv-endpoint=h:1", "--last-call=700s"}),
                 "--last-call 700s is longer than --join-timeout 10m: with MIN nodes there"));
  CHECK(has_note(resolve({"--last-call=700s"}), "matters only with --nnodes MIN:MAX"));
  CHECK(resolve({"--nnodes=1:2", "--rdzv-endpoint=h:1", "--join-timeout=5s"}).line.notes.empty());
}

TEST_CASE("a switch may be off") {
  for (const char* name : {"PET_RUN_PATH", "PET_VIRTUAL_LOCAL_RANK", "MUSTER_RUN_PATH",
                           "MUSTER_INHERIT", "MUSTER_USE_ENV"}) {
    for (const char* off : {"0", "false", "no", "off"}) {
      INFO(name << '=' << off);
      CHECK(resolve({}, {{name, off}}).line.notes.empty());
    }
  }
  CHECK(error_of({}, {{"PET_RUN_PATH", "perhaps"}}).starts_with("PET_RUN_PATH: "));
}

TEST_CASE("restart budgets") {
  CHECK(resolve({"--max-restarts=3/1h"}).options.policy.max_restarts_window == 3600s);
  CHECK(error_of({"--max-restarts=-1"}).find("N or N/WINDOW") != std::string::npos);
  CHECK(error_of({"--max-restarts=3/0"}).find("more than zero") != std::string::npos);
}

TEST_CASE("signals") {
  CHECK(resolve({}).options.forward_signals.size() == 4);
  CHECK(resolve({"--forward-signals=none"}).options.forward_signals.empty());
  CHECK(error_of({"--forward-signals=TERM"}).find("SIGTERM cannot be forwarded") !=
        std::string::npos);
  CHECK(resolve({"--stop-signal=SIGINT"}).options.stop_signal == 2);
  CHECK(error_of({"--stop-signal=NOPE"}) ==
        "--stop-signal: 'NOPE' is not a signal's name, or "
        "same");
}

TEST_CASE("names become parts of paths") {
  CHECK(error_of({"--rdzv-id", "a/b"}).find("contains a '/'") != std::string::npos);
  CHECK(error_of({"--rdzv-id", ".."}).find("is not a name") != std::string::npos);
  CHECK(error_of({"--rdzv-id", std::string(300, 'x')}).find("longer") != std::string::npos);
  CHECK(error_of({"--node-name", "a\nb"}).find("control") != std::string::npos);
  CHECK(resolve({"--node-name", "pod/0"}).ok);
}

TEST_CASE("other values") {
  CHECK(error_of({"--nproc-per-node=0"}).find("above zero") != std::string::npos);
  CHECK(error_of({"--nproc-per-node=xpu"}).find("xpu") != std::string::npos);
  CHECK(error_of({"--nnodes=2:1"}).find("MIN <= MAX") != std::string::npos);
  CHECK(error_of({"--exit-code=loud"}) == "--exit-code: 'loud' is not one of worker, flat");
  CHECK(error_of({"-r", "4"}).find("0, 1, 2, 3 or a map") != std::string::npos);
  CHECK(error_of({"-r", "0:1,0:2"}).find("names 0 twice") != std::string::npos);
  CHECK(error_of({"--master-port-range=9-3"}).find("A <= B") != std::string::npos);
  CHECK(resolve({"--master-port-range=7000"}).options.master_port_high == 7000);
  CHECK(resolve({"--stdin=3"}).options.stdin_local_rank == 3);
  CHECK(resolve({"--advertise-addr=[::1]"}).options.advertise_addr == "::1");
  CHECK(error_of({"-m", "--no-python"}).find("exclude each other") != std::string::npos);
  CHECK(resolve({}, {}, false).error.find("no program given") == 0);
}

TEST_CASE("variables of the surroundings") {
  CHECK(resolve({}, {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "5"}}).options.policy.stop_grace == 5s);
  CHECK(resolve({}, {{"LOGLEVEL", "DEBUG"}}).options.log_level == LogLevel::kDebug);
  CHECK(resolve({}, {{"LOGLEVEL", "LOUD"}}).options.log_level == LogLevel::kWarning);
  CHECK(resolve({}, {{"CI", "true"}}).options.chaos_strict);
  CHECK_FALSE(resolve({}, {{"CI", "true"}, {"MUSTER_CHAOS_STRICT", "0"}}).options.chaos_strict);
  CHECK(has_note(resolve({}, {{"TORCHELASTIC_HEALTH_CHECK_PORT", "1"}}), "is ignored"));
}

TEST_CASE("every default is one that its own option accepts") {
  for (const OptionDef& option : option_table()) {
    if (option.standing != Standing::kHere) continue;
    INFO(option.name);
    REQUIRE(option.apply != nullptr);
    CHECK_FALSE(option.help.empty());
    CHECK((option.kind == OptionKind::kSwitch) == option.metavar.empty());
    RunOptions options;
    if (!option.fallback.empty()) {
      CHECK(option.apply(std::string(option.fallback), options).ok());
    }
  }
}

TEST_CASE("help names every option with its variables") {
  const std::string help = run_help();
  for (const OptionDef& option : option_table()) {
    INFO(option.name);
    const bool here = option.standing == Standing::kHere;
    CHECK((help.find(cat("--", option.name, option.metavar.empty() ? "\n" : " ")) !=
           std::string::npos) == (here && option.torchrun.empty() ? true : here));
    if (here) CHECK(help.find(muster_variable(option)) != std::string::npos);
  }
  CHECK(help.find("PET_SHUTDOWN_TIMEOUT") != std::string::npos);
  for (const std::string_view row : split(help, '\n'))
    CHECK(row.size() <= 80);
}

TEST_CASE("print-config says where each value came from") {
  const EnvironmentMap environment{{"PET_MAX_RESTARTS", "4"}};
  Result result = resolve({"--print-config", "--nnodes=2", "--rdzv-endpoint=h:1"}, environment);
  REQUIRE(result.ok);
  CHECK(result.line.print_config);
  const auto json =
      nlohmann::json::parse(print_config(result.line, result.options, 3, {"/bin/true", "\xff"}));
  CHECK(json["schema"] == 1);
  CHECK(json["options"]["max-restarts"]["value"] == "4");
  CHECK(json["options"]["max-restarts"]["source"] == "PET_MAX_RESTARTS");
  CHECK(json["options"]["stop-grace"]["value"] == "30s");
  CHECK(json["options"]["stop-grace"]["source"] == "default");
  CHECK(json["options"]["nnodes"]["source"] == "flag");
  CHECK(json["options"]["standalone"]["value"] == false);
  CHECK(json["derived"]["server"] == "h:1");
  CHECK(json["derived"]["workers_on_this_node"] == 3);
  CHECK(json["derived"]["ports"].size() == 2);
}

TEST_CASE("no words can make the parser fall over") {
  Words pool{"--",          "-",           "--=",   "-=",
             "--=x",        "-r",          "-r=",   "--nnodes=",
             "--nnodes",    "=",           "",      "--print-config=",
             "--h",         "--help=1",    "-m",    "--chaos",
             "{",           "--rdzv-conf", "=,=",   "--rdzv-conf==",
             "--node_rank", "--\xff\xfe",  "-\xff", "--_",
             "--_-"};
  for (const std::string& a : pool) {
    for (const std::string& b : pool) {
      for (const std::string& c : pool) {
        const Result result = resolve({a, b, c});
        if (!result.ok && !result.line.help) CHECK_FALSE(result.error.empty());
      }
    }
  }
}

}  // namespace muster::launcher
