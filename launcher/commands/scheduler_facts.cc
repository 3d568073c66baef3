// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/scheduler_facts.h"

#include <array>

#include "launcher/commands/text.h"

namespace muster::launcher {
namespace {

using Names = std::array<std::string_view, 3>;  // the first that is set counts

struct Scheduler {
  std::string_view name;
  std::string_view proof;  // a variable that only it sets
  Names index;
  Names nodes;
  Names first_host;
  bool strips_pmi = false;
};

constexpr std::array<Scheduler, 7> kSchedulers{{
    {.name = "slurm",
     .proof = "SLURM_JOB_ID",
     .index = {"SLURM_NODEID"},
     .nodes = {"SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES"},
     .first_host = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"},
     .strips_pmi = true},
    {.name = "kubeflow",
     .proof = "PET_NNODES",
     .index = {"RANK"},
     .nodes = {"WORLD_SIZE"},
     .first_host = {"MASTER_ADDR"}},
    {.name = "jobset",
     .proof = "JOBSET_NAME",
     .index = {"JOB_COMPLETION_INDEX"},
     .nodes = {},
     .first_host = {}},
    {.name = "lws",
     .proof = "LWS_WORKER_INDEX",
     .index = {"LWS_WORKER_INDEX"},
     .nodes = {"LWS_GROUP_SIZE"},
     .first_host = {"LWS_LEADER_ADDRESS"}},
    {.name = "volcano",
     .proof = "VC_TASK_INDEX",
     .index = {"VC_TASK_INDEX", "VK_TASK_INDEX"},
     .nodes = {"VC_WORKER_NUM"},
     .first_host = {}},
    {.name = "indexed-job",
     .proof = "JOB_COMPLETION_INDEX",
     .index = {"JOB_COMPLETION_INDEX"},
     .nodes = {},
     .first_host = {}},
    {.name = "mpi",
     .proof = "OMPI_COMM_WORLD_RANK",
     .index = {"OMPI_COMM_WORLD_RANK"},
     .nodes = {"OMPI_COMM_WORLD_SIZE"},
     .first_host = {},
     .strips_pmi = true},
}};

class Reader {
 public:
  explicit Reader(const EnvironmentMap& environment) : environment_(environment) {}

  std::string_view value(std::string_view name) const {
    const auto found = environment_.find(std::string(name));
    return found == environment_.end() ? std::string_view() : std::string_view(found->second);
  }
  // The value of the first that is set; adds it to the evidence.
  std::string_view first(const Names& names, std::string& evidence) const {
    for (const std::string_view name : names) {
      if (name.empty() || value(name).empty()) continue;
      const std::string words = cat(name, "=", value(name));
      if (evidence.find(words) == std::string::npos) evidence += cat(", ", words);
      return value(name);
    }
    return {};
  }

 private:
  const EnvironmentMap& environment_;
};

// Version 1 of the operator writes torch's variables beside PET_; version 2 writes PET_ alone,
// which need no detection.
bool is_kubeflow_v1(const Reader& read) {
  for (const char* name : {"PET_NNODES", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"}) {
    if (read.value(name).empty()) return false;
  }
  return !read.value("KUBERNETES_SERVICE_HOST").empty();
}

bool is_there(const Scheduler& scheduler, const Reader& read) {
  if (scheduler.name == "kubeflow") return is_kubeflow_v1(read);
  // One launcher a node: ranks are nodes then.
  const bool one_a_node = read.value("OMPI_COMM_WORLD_LOCAL_SIZE") == "1";
  if (scheduler.name == "mpi" && !one_a_node) return false;
  return !read.value(scheduler.proof).empty();
}

SchedulerFacts facts_of(const Scheduler& scheduler, const Reader& read) {
  SchedulerFacts facts;
  facts.name = scheduler.name;
  facts.evidence = cat(scheduler.proof, "=", read.value(scheduler.proof));
  facts.index = read_number<std::uint32_t>(read.first(scheduler.index, facts.evidence));
  facts.nodes = read_number<std::uint32_t>(read.first(scheduler.nodes, facts.evidence));
  const std::string_view host = read.first(scheduler.first_host, facts.evidence);
  facts.first_host = scheduler.name == "slurm" ? first_of_nodelist(host) : std::string(host);
  facts.strips_pmi = scheduler.strips_pmi;
  facts.flat_exit_code = scheduler.name == "kubeflow";
  return facts;
}

}  // namespace

const std::vector<std::string_view>& scheduler_names() {
  static const std::vector<std::string_view> kNames = [] {
    std::vector<std::string_view> names;
    for (const Scheduler& scheduler : kSchedulers)
      names.push_back(scheduler.name);
    return names;
  }();
  return kNames;
}

std::optional<SchedulerFacts> find_scheduler(const EnvironmentMap& environment,
                                             std::string_view wanted) {
  const Reader read(environment);
  for (const Scheduler& scheduler : kSchedulers) {
    if (wanted != "auto" && wanted != scheduler.name) continue;
    if (is_there(scheduler, read)) return facts_of(scheduler, read);
  }
  return std::nullopt;
}

std::string_view proof_of_scheduler(std::string_view name) {
  for (const Scheduler& scheduler : kSchedulers) {
    if (scheduler.name == name) return scheduler.proof;
  }
  return {};
}

std::string first_of_nodelist(std::string_view list) {
  const std::size_t bracket = list.find('[');
  const std::size_t comma = list.find(',');
  if (bracket == std::string_view::npos || comma < bracket) {
    return std::string(list.substr(0, comma));
  }
  const std::size_t end = list.find_first_of("-,]", bracket);
  if (end == std::string_view::npos) return "";
  // "rack[1-2]node[1-3]": what stands behind the brackets has its first as well.
  const std::size_t close = list.find(']', bracket);
  if (close == std::string_view::npos) return "";
  const std::size_t next = list.find(',', close);
  const std::string_view rest =
      list.substr(close + 1, next == std::string_view::npos ? next : next - close - 1);
  return cat(list.substr(0, bracket), list.substr(bracket + 1, end - bracket - 1),
             rest.empty() ? "" : first_of_nodelist(rest));
}

}  // namespace muster::launcher
