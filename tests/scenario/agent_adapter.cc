// SPDX-License-Identifier: Apache-2.0
//
// Plays agent_*.txt against agent::Agent. The commands stand at the head of run_command below;
// `config …` comes first and makes the machine. Acknowledgements of heartbeats come by themselves
// while `acks yes` (the default): a scenario shows only what it is about.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/agent.h"
#include "tests/scenario/agent_lines.h"
#include "tests/scenario/runner.h"

namespace muster::scenario {
namespace {

// ---------------------------------------------------------------- the adapter

class AgentAdapter : public Adapter {
 public:
  Transcript run(Command& command, Instant now) override {
    now_ = now;
    out_.clear();
    if (command.name() == "config") {
      configure(command);
    } else if (!agent_) {
      command.complain("the first command is config");
    } else {
      run_command(command);
    }
    return std::move(out_);
  }
  std::optional<Instant> next_deadline() const override {
    return agent_ ? agent_->next_deadline() : std::nullopt;
  }
  Transcript tick(Instant now) override {
    now_ = now;
    out_.clear();
    step(ag::Tick{});
    return std::move(out_);
  }

 private:
  using Handler = void (AgentAdapter::*)(Command&);

  void step(const ag::Event& event) {
    const std::vector<ag::Action> actions = agent_->step(event, now_);
    for (const ag::Action& action : actions) {
      if (acks_ && acknowledge(action)) continue;
      out_.push_back(std::visit(Lines{}, action));
    }
  }
  // A heartbeat that the server answers within the same instant is not worth a line.
  bool acknowledge(const ag::Action& action) {
    const auto* send = std::get_if<ag::Send>(&action);
    if (send == nullptr) return false;
    const auto* beat = std::get_if<Heartbeat>(&send->message.body);
    if (beat == nullptr) return false;
    said(HeartbeatAck{beat->sequence}, send->message.envelope.generation);
    return true;
  }
  void said(ServerBody body, Generation generation) {
    ServerMessage message;
    message.envelope = {config_.spec.job, run_, generation, config_.node.name, incarnation_, 1};
    message.body = std::move(body);
    step(ag::ServerSaid{std::move(message)});
  }
  Generation generation_of(Command& command) {
    return command.number_or("g", agent_->view().generation);
  }

  void configure(Command& command) {
    config_.spec.job = "j";
    config_.node.name = command.text_or("node", "a");
    config_.spec.min_nodes = static_cast<std::uint32_t>(command.number_or("min", 1));
    config_.spec.max_nodes =
        static_cast<std::uint32_t>(command.number_or("max", config_.spec.min_nodes));
    config_.node.slots = static_cast<std::uint32_t>(command.number_or("slots", 1));
    JobPolicy& policy = config_.spec.policy;
    policy.stop_grace = command.duration("stop_grace").value_or(policy.stop_grace);
    policy.server_grace = command.duration("server_grace").value_or(policy.server_grace);
    policy.join_timeout = command.duration("join_timeout").value_or(policy.join_timeout);
    config_.stop_budget = command.duration("stop_budget").value_or(config_.stop_budget);
    config_.forward_signals = {10};
    config_.argv = {"/bin/train"};
    config_.endpoint = "h:29400";
    agent_ = std::make_unique<ag::Agent>(config_);
  }

  // clang-format off
  void run_command(Command& command) {
    static const std::map<std::string, Handler> kHandlers{
        {"start", &AgentAdapter::start},            // the process starts
        {"up", &AgentAdapter::up},                  // a stream is open
        {"down", &AgentAdapter::down},              // down REASON [muster=no]
        {"acks", &AgentAdapter::acks},              // acks yes|no
        {"accept", &AgentAdapter::accept},          // accept [run=R] [incarnation=N]
        {"refuse", &AgentAdapter::refuse},          // refuse TEXT
        {"waiting", &AgentAdapter::waiting},        // waiting joined=N missing=N
                                                    //   [remaining=D]
        {"prepare", &AgentAdapter::prepare},        // prepare g=G [attempt] [group_rank] [nodes]
                                                    //   [restarts] [reason=worker_failure|…]
        {"held", &AgentAdapter::held},              // held [port=P] [attempt=A]
        {"port_failed", &AgentAdapter::port_failed},// port_failed REASON [attempt=A]
        {"commit", &AgentAdapter::commit},          // commit g=G [attempt=A]
        {"spawned", &AgentAdapter::spawned},        // spawned LOCAL_RANK
        {"ended", &AgentAdapter::ended},            // ended LOCAL_RANK code=N|signal=N|exec=TEXT
        {"gone", &AgentAdapter::gone},              // gone LOCAL_RANK
        {"unkillable", &AgentAdapter::unkillable},  // unkillable LOCAL_RANK
        {"stop", &AgentAdapter::stop},              // stop [g=G] [planned=yes] : a stop order
        {"running", &AgentAdapter::running},        // generation_running arrives
        {"recovered", &AgentAdapter::recovered},    // recovered arrives
        {"node_left", &AgentAdapter::node_left},    // node_left NODE arrives
        {"outcome", &AgentAdapter::outcome},        // outcome succeeded|failed|stopped [code=N]
        {"evict", &AgentAdapter::evict},            // evict REASON
        {"server_leaves", &AgentAdapter::server_leaves},  // server_leaves REASON
        {"signal", &AgentAdapter::signal},          // signal NAME : to the agent
        {"guardian_lost", &AgentAdapter::guardian_lost},
        {"progress", &AgentAdapter::progress},      // progress RANK step=N
        {"fault", &AgentAdapter::fault},            // fault INDEX [rank=R] : it fired
    };
    // clang-format on
    const auto found = kHandlers.find(command.name());
    if (found == kHandlers.end()) {
      command.complain("unknown command: " + command.name());
      return;
    }
    (this->*found->second)(command);
  }

  void start(Command&) { step(ag::Started{}); }
  void up(Command&) { step(ag::LinkUp{}); }
  void down(Command& command) {
    ag::LinkDown event;
    event.reason = command.need_word("reason");
    event.speaks_muster = command.flag_or("muster", true);
    step(event);
  }
  void acks(Command& command) { acks_ = command.need_word("yes or no") == "yes"; }
  void accept(Command& command) {
    run_ = command.text_or("run", run_);
    incarnation_ = static_cast<Incarnation>(command.number_or("incarnation", 7));
    JoinAccepted accepted;
    accepted.policy = config_.spec.policy;
    said(accepted, kNoGeneration);
  }
  void refuse(Command& command) {
    said(JoinRefused{JoinRefused::Why::kOtherProgram, command.need_word("text"), 2}, kNoGeneration);
  }
  void waiting(Command& command) {
    Waiting body;
    body.min_nodes = config_.spec.min_nodes;
    body.max_nodes = config_.spec.max_nodes;
    const std::int64_t joined = command.number_or("joined", 1);
    for (std::int64_t i = 0; i < joined; ++i) {
      body.joined.emplace_back(1, static_cast<char>('a' + i));
    }
    body.missing = static_cast<std::uint32_t>(command.number_or("missing", 0));
    body.remaining = command.duration("remaining").value_or(0ns);
    said(body, kNoGeneration);
  }
  void prepare(Command& command) {
    static const std::map<std::string, FormReason> kReasons{
        {"start", FormReason::kStart},
        {"worker_failure", FormReason::kWorkerFailure},
        {"node_lost", FormReason::kNodeLost},
        {"node_left", FormReason::kNodeLeft}};
    if (run_.empty()) run_ = "r1";
    Prepare body;
    body.attempt = static_cast<Attempt>(command.number_or("attempt", 0));
    Assignment& assignment = body.assignment;
    assignment.generation = command.number_or("g", 0);
    const auto nodes = static_cast<std::uint32_t>(command.number_or("nodes", 1));
    const std::uint32_t slots = config_.node.slots;
    for (std::uint32_t i = 0; i < nodes; ++i) {
      const std::string name(1, static_cast<char>('a' + i));
      assignment.members.push_back({name, i, i * slots, slots});
    }
    assignment.world_size = nodes * slots;
    assignment.group_rank = static_cast<std::uint32_t>(command.number_or("group_rank", 0));
    assignment.restarts_used = static_cast<std::uint32_t>(command.number_or("restarts", 0));
    const std::string reason = command.text_or("reason", "start");
    if (!kReasons.contains(reason)) command.complain("no such reason: " + reason);
    if (kReasons.contains(reason)) assignment.reason = kReasons.at(reason);
    said(body, assignment.generation);
  }
  void held(Command& command) {
    step(ag::MasterPortHeld{static_cast<Attempt>(command.number_or("attempt", 0)),
                            static_cast<std::uint16_t>(command.number_or("port", 20001))});
  }
  void port_failed(Command& command) {
    step(ag::MasterPortFailed{static_cast<Attempt>(command.number_or("attempt", 0)),
                              command.need_word("reason")});
  }
  void commit(Command& command) {
    said(Commit{static_cast<Attempt>(command.number_or("attempt", 0)), 20001},
         command.number_or("g", 0));
  }
  std::uint32_t local_rank(Command& command) {
    const std::string word = command.need_word("local rank");
    const bool good = word.size() == 1 && word[0] >= '0' && word[0] <= '9';
    if (!good) command.complain("not a local rank: " + word);
    return good ? static_cast<std::uint32_t>(word[0] - '0') : 0;
  }
  void spawned(Command& command) {
    const std::uint32_t rank = local_rank(command);
    step(ag::WorkerSpawned{rank, 100 + rank});
  }
  void ended(Command& command) {
    ag::WorkerEnded event;
    event.local_rank = local_rank(command);
    event.pid = 100 + event.local_rank;
    event.order = ++order_;
    if (const auto code = command.number("code")) {
      event.status = {ExitStatus::Kind::kExited, static_cast<int>(*code), false, ""};
    } else if (const auto signal = command.number("signal")) {
      event.status = {ExitStatus::Kind::kSignaled, static_cast<int>(*signal), false, ""};
    } else {
      event.pid = 0;
      event.status = {ExitStatus::Kind::kExecFailed, 2, false, command.text_or("exec", "?")};
    }
    step(event);
  }
  void gone(Command& command) { step(ag::WorkerGone{local_rank(command)}); }
  void unkillable(Command& command) {
    const std::uint32_t rank = local_rank(command);
    step(ag::WorkerUnkillable{rank, 100 + rank, "D"});
  }
  void stop(Command& command) {
    StopOrder order;
    order.planned = command.flag_or("planned", false);
    said(order, generation_of(command));
  }
  void running(Command& command) {
    JobEvent event;
    event.generation = generation_of(command);
    event.body = event::GenerationRunning{};
    said(JobEventNotice{event}, *event.generation);
  }
  void recovered(Command& command) {
    JobEvent event;
    event.generation = generation_of(command);
    event.body = event::Recovered{0ms, 20ms, 10ms, 180ms, 210ms, std::nullopt};
    said(JobEventNotice{event}, *event.generation);
  }
  void node_left(Command& command) {
    JobEvent event;
    event.node = command.need_word("node");
    event.body = event::NodeLeft{};
    said(JobEventNotice{event}, agent_->view().generation);
  }
  void outcome(Command& command) {
    const std::string kind = command.need_word("outcome");
    Outcome body;
    body.exit_code = static_cast<int>(command.number_or("code", 0));
    if (kind == "failed") {
      body.kind = OutcomeKind::kFailed;
      body.exit_class = ExitClass::kWorker;
    } else if (kind == "stopped") {
      body.kind = OutcomeKind::kStopped;
      body.exit_class = ExitClass::kStopped;
    } else if (kind != "succeeded") {
      command.complain("no such outcome: " + kind);
    }
    said(OutcomeNotice{body}, agent_->view().generation);
  }
  void evict(Command& command) { said(Evicted{command.need_word("reason")}, kNoGeneration); }
  void server_leaves(Command& command) {
    said(ServerLeaving{command.need_word("reason")}, kNoGeneration);
  }
  void signal(Command& command) {
    const std::string name = command.need_word("signal");
    const std::optional<int> number = signal_number(name);
    if (!number) command.complain("no such signal: " + name);
    step(ag::SignalReceived{number.value_or(15)});
  }
  void guardian_lost(Command&) { step(ag::GuardianLost{}); }
  void progress(Command& command) {
    RankProgress rank;
    rank.rank = local_rank(command);
    rank.step = static_cast<std::uint64_t>(command.number_or("step", 0));
    step(ag::ProgressSampled{{rank}});
  }
  void fault(Command& command) {
    ag::FaultFired event;
    event.fault_index = local_rank(command);
    if (const auto rank = command.number("rank")) event.rank = static_cast<std::uint32_t>(*rank);
    step(event);
  }

  ag::AgentConfig config_;
  std::unique_ptr<ag::Agent> agent_;
  Instant now_;
  Transcript out_;
  RunId run_;
  Incarnation incarnation_ = 0;
  std::uint64_t order_ = 0;
  bool acks_ = true;
};

const bool registered = register_adapter("agent", [] { return std::make_unique<AgentAdapter>(); });

}  // namespace
}  // namespace muster::scenario
