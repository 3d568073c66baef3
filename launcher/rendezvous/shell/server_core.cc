// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/shell/server_core.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "launcher/rendezvous/shell/store.h"
#include "launcher/rendezvous/shell/strand_clock.h"

namespace muster::rendezvous {
namespace {

constexpr const char* kJournalFailed = "the server's journal failed";

OrderAnswer refusal(const char* why) {
  return {OrderAnswer::Kind::kRefused, why};
}

// While agents are connected the strand wakes at least this often, so that a stall is noticed long
// before it could be taken for the silence of an agent; no oftener than that needs.
Duration longest_sleep(std::optional<Duration> shortest_node_timeout) {
  return std::clamp(shortest_node_timeout.value_or(0ns) / 10, Duration{250ms}, Duration{1s});
}

std::int64_t wall_clock_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

struct ServerCore::State : std::enable_shared_from_this<ServerCore::State> {
  struct Session {
    std::shared_ptr<SessionSink> sink;
    std::string peer_addr;
    std::optional<JobId> job;  // of which it is an accepted agent: may use the store
  };

  State(boost::asio::io_context& io_context, ServerOptions server_options)
      : io(io_context),
        options(std::move(server_options)),
        journal(std::move(options.journal)),
        origin(std::chrono::steady_clock::now()),
        machine(machine_options(options), Rng(options.seed)),
        timer(io) {}

  static Options machine_options(const ServerOptions& options) {
    Options out = options.machine;
    out.unix_us_at_origin = wall_clock_us();
    return out;
  }

  Instant raw_now() const { return {std::chrono::steady_clock::now() - origin}; }

  void step(const Event& event) {
    if (broken || closed) return;
    const Instant now = clock.now(raw_now());
    if (const Duration stall = std::exchange(told_stalled, clock.stalled()); stall < told_stalled) {
      perform(machine.step(HostStalled{told_stalled - stall}, now));
    }
    perform(machine.step(event, now));
    arm();
  }

  // One step is one transaction, and nothing of the step leaves before it is durable.
  bool persist(const std::vector<Action>& actions) {
    if (journal == nullptr) return true;
    const absl::Status committed = journal->commit(actions);
    if (!committed.ok()) break_down(committed);
    return committed.ok();
  }

  // Goes on from what an earlier server wrote.
  void recover() {
    JournalContents written = std::move(options.written);
    if (!written.runs.empty()) step(JournalRead{std::move(written.runs)});
    for (const StoredKey& key : written.keys) {
      if (broken) return;
      if (store.restore(key.job, key.generation, key.key, *key.value)) continue;
      // Of a generation that ended with the server, before its keys were dropped.
      persist({CloseStore{key.job, key.generation}});
    }
  }

  void ask_store(SessionId session, const Session& from, const StoreRequest& request) {
    std::optional<Store::Change> change;
    const Instant now = clock.now(raw_now());
    const Store::Answers answers = store.ask(session, *from.job, request, now, &change);
    if (change && journal != nullptr) {
      const absl::Status written = journal->put(
          {*from.job, request.generation, std::move(change->key), std::move(change->value)});
      if (!written.ok()) return break_down(written);
    }
    deliver(answers);
    arm();
  }

  void perform(std::vector<Action> actions) {
    if (!persist(actions)) return;
    for (Action& action : actions) {
      std::visit([this](auto& order) { carry_out(order); }, action);
    }
  }

  void carry_out(Send& order) {
    const auto session = sessions.find(order.session);
    if (session == sessions.end()) return;
    if (std::holds_alternative<JoinAccepted>(order.message.body)) {
      session->second.job = order.message.envelope.job;
    } else if (std::holds_alternative<Evicted>(order.message.body)) {
      session->second.job.reset();
      store.forget(order.session);
    }
    session->second.sink->say(order.message);
  }
  void carry_out(CloseSession& order) { finish(order.session, "the server closed the session"); }
  void carry_out(Persist&) {}  // done first, in persist()
  void carry_out(Forget&) {}
  void carry_out(Emit& order) {
    if (!options.on_event) return;
    boost::asio::post(io, [self = shared_from_this(), order = std::move(order)] {
      if (self->options.on_event) self->options.on_event(order.job, order.run, order.event);
    });
  }
  void carry_out(OpenStore& order) { store.open(order.job, order.generation); }
  void carry_out(CloseStore& order) { deliver(store.close(order.job, order.generation)); }
  void carry_out(ReplyOperator& order) {
    const auto asked = requests.find(order.request);
    if (asked == requests.end()) return;
    boost::asio::post(io, [answered = std::move(asked->second), order = std::move(order)] {
      answered(order.answer);
    });
    requests.erase(asked);
  }
  void carry_out(JobOver& order) {
    if (!options.on_job_over) return;
    boost::asio::post(io, [self = shared_from_this(), order = std::move(order)] {
      if (self->options.on_job_over) self->options.on_job_over(order.job, order.run, order.outcome);
    });
  }

  void deliver(const Store::Answers& answers) {
    for (const Store::Answer& answer : answers) {
      const auto session = sessions.find(answer.session);
      if (session != sessions.end()) session->second.sink->say(answer.reply);
    }
  }

  void finish(SessionId id, const std::string& reason) {
    const auto session = sessions.find(id);
    if (session == sessions.end()) return;
    const std::shared_ptr<SessionSink> sink = std::move(session->second.sink);
    sessions.erase(session);
    store.forget(id);
    sink->finish(reason);
  }

  void finish_all(const std::string& reason) {
    while (!sessions.empty())
      finish(sessions.begin()->first, reason);
  }

  void break_down(const absl::Status& why) {
    broken = true;
    timer.cancel();
    finish_all(kJournalFailed);
    for (auto& [request, answered] : requests) {
      boost::asio::post(io,
                        [answered = std::move(answered)] { answered(refusal(kJournalFailed)); });
    }
    requests.clear();
    if (!options.on_broken) return;
    boost::asio::post(io, [self = shared_from_this(), why] {
      if (self->options.on_broken) self->options.on_broken(why);
    });
  }

  void arm() {
    const std::optional<Instant> due = earlier(machine.next_deadline(), store.next_deadline());
    if (!due || broken || closed) {
      clock.arm(std::nullopt);
      armed.reset();
      timer.cancel();
      return;
    }
    const Instant now = clock.now(raw_now());
    const Duration sleep = longest_sleep(machine.shortest_node_timeout());
    const Instant wake = sessions.empty() ? *due : std::min(*due, now + sleep);
    clock.arm(wake);
    // A timer that rings a little early finds nothing due and arms itself again: most heartbeats
    // then cost no timer operation.
    if (armed && *armed <= wake && *armed > now) return;
    armed = wake;
    timer.expires_after(std::max(wake - now, Duration(0)));
    timer.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
      const auto self = weak.lock();
      if (self && !error) self->ring();
    });
  }

  void ring() {
    armed.reset();
    const Instant now = clock.now(raw_now());
    deliver(store.expire(now));
    const std::optional<Instant> due = machine.next_deadline();
    if ((due && *due <= now) || told_stalled < clock.stalled()) {
      step(Tick{});
    } else {
      arm();
    }
  }

  boost::asio::io_context& io;
  ServerOptions options;
  std::unique_ptr<Journal> journal;
  std::chrono::steady_clock::time_point origin;
  Rendezvous machine;
  StrandClock clock;
  Duration told_stalled{0};  // of clock.stalled(), what the machine knows
  Store store;
  boost::asio::steady_timer timer;
  std::optional<Instant> armed;
  std::map<SessionId, Session> sessions;
  std::map<std::uint64_t, Answered> requests;
  SessionId last_session = 0;
  std::uint64_t last_request = 0;
  bool stopped = false;
  bool closed = false;
  bool broken = false;
};

namespace {

// Both ends of an in-process session: what the server says is posted to the io loop.
class LocalPipe : public SessionSink, public std::enable_shared_from_this<LocalPipe> {
 public:
  LocalPipe(boost::asio::io_context& io, LocalSession::Callbacks callbacks)
      : io_(io), callbacks_(std::move(callbacks)) {}

  void say(const ServerMessage& message) override {
    boost::asio::post(io_, [self = shared_from_this(), message] {
      if (self->open_ && self->callbacks_.said) self->callbacks_.said(message);
    });
  }
  void say(const StoreReply& reply) override {
    boost::asio::post(io_, [self = shared_from_this(), reply] {
      if (self->open_ && self->callbacks_.store_said) self->callbacks_.store_said(reply);
    });
  }
  void finish(const std::string& reason) override {
    boost::asio::post(io_, [self = shared_from_this(), reason] {
      if (!self->open_) return;
      self->open_ = false;
      if (self->callbacks_.closed) self->callbacks_.closed(reason);
    });
  }

  bool open() const { return open_; }
  void shut() { open_ = false; }

 private:
  boost::asio::io_context& io_;
  LocalSession::Callbacks callbacks_;
  bool open_ = true;
};

class LocalSessionImpl : public LocalSession {
 public:
  // `core` outlives every call it gets, or is expired.
  LocalSessionImpl(std::weak_ptr<ServerCore*> core, std::shared_ptr<LocalPipe> pipe, SessionId id)
      : core_(std::move(core)), pipe_(std::move(pipe)), id_(id) {}
  ~LocalSessionImpl() override { close(); }
  LocalSessionImpl(const LocalSessionImpl&) = delete;
  LocalSessionImpl& operator=(const LocalSessionImpl&) = delete;

  void send(AgentMessage message) override {
    const auto core = core_.lock();
    if (core && pipe_->open()) (*core)->agent_said(id_, std::move(message));
  }
  void store(StoreRequest request) override {
    const auto core = core_.lock();
    if (core && pipe_->open()) (*core)->store_asked(id_, std::move(request));
  }
  void close() override {
    if (!pipe_->open()) return;
    pipe_->shut();
    if (const auto core = core_.lock()) (*core)->detach(id_);
  }

 private:
  std::weak_ptr<ServerCore*> core_;
  std::shared_ptr<LocalPipe> pipe_;
  SessionId id_;
};

}  // namespace

ServerCore::ServerCore(boost::asio::io_context& io, ServerOptions options)
    : state_(std::make_shared<State>(io, std::move(options))),
      self_(std::make_shared<ServerCore*>(this)) {
  state_->recover();
  state_->arm();
}

ServerCore::~ServerCore() {
  self_.reset();
  state_->timer.cancel();
  state_->requests.clear();
  state_->finish_all("the server ended");
  state_->options.on_event = nullptr;
  state_->options.on_job_over = nullptr;
  state_->options.on_broken = nullptr;
}

const ServerOptions& ServerCore::options() const {
  return state_->options;
}

SessionId ServerCore::attach(std::shared_ptr<SessionSink> sink, std::string peer_addr) {
  const SessionId id = ++state_->last_session;
  if (state_->stopped || state_->broken) {
    sink->finish("the server is going away");
    return id;
  }
  if (state_->sessions.size() >= state_->options.max_sessions) {
    sink->finish("the server has its " + std::to_string(state_->options.max_sessions) + " streams");
    return id;
  }
  state_->sessions[id] = {std::move(sink), std::move(peer_addr), std::nullopt};
  return id;
}

void ServerCore::agent_said(SessionId session, AgentMessage message) {
  const auto found = state_->sessions.find(session);
  if (found == state_->sessions.end()) return;
  state_->step(AgentSaid{session, found->second.peer_addr, std::move(message)});
}

void ServerCore::store_asked(SessionId session, StoreRequest request) {
  const auto found = state_->sessions.find(session);
  if (found == state_->sessions.end()) return;
  if (!found->second.job) {
    StoreReply reply;
    reply.id = request.id;
    reply.status = StoreReply::Status::kStale;
    reply.text = "this agent is not a member";
    found->second.sink->say(reply);
    return;
  }
  state_->ask_store(session, found->second, request);
}

void ServerCore::detach(SessionId session) {
  if (state_->sessions.erase(session) == 0) return;
  state_->store.forget(session);
  state_->step(StreamLost{session});
}

std::unique_ptr<LocalSession> ServerCore::attach_local(LocalSession::Callbacks callbacks) {
  auto pipe = std::make_shared<LocalPipe>(state_->io, std::move(callbacks));
  const SessionId id = attach(pipe, "");
  return std::make_unique<LocalSessionImpl>(self_, std::move(pipe), id);
}

void ServerCore::operate(JobId job, std::string by, Order order, Answered answered) {
  if (state_->broken || state_->closed) {
    const char* why = state_->broken ? kJournalFailed : "the server is going away";
    boost::asio::post(state_->io,
                      [answered = std::move(answered), why] { answered(refusal(why)); });
    return;
  }
  const std::uint64_t request = ++state_->last_request;
  state_->requests[request] = std::move(answered);
  state_->step(OperatorAsked{request, std::move(job), std::move(by), std::move(order)});
}

std::vector<JobView> ServerCore::view() const {
  return state_->machine.view(state_->clock.now(state_->raw_now()));
}

void ServerCore::stop(std::string reason) {
  if (state_->stopped) return;
  state_->stopped = true;
  state_->step(ServerStopping{reason});
  state_->finish_all("server_leaving: " + reason);
}

void ServerCore::close(std::string reason) {
  if (state_->stopped) return;
  state_->stopped = state_->closed = true;
  state_->timer.cancel();
  state_->finish_all(reason);
}

std::size_t ServerCore::open_sessions() const {
  return state_->sessions.size();
}

}  // namespace muster::rendezvous
