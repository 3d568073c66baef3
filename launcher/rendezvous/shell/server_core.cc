// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/shell/server_core.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "launcher/rendezvous/shell/answer_pacer.h"
#include "launcher/rendezvous/shell/local_session.h"
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
    RunId run;                 // of that job
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

  // Before anything else. Streams may hold `outgoing` for longer than this lives.
  void prepare() {
    outgoing = std::make_shared<Outgoing>(options.max_outgoing_bytes,
                                          [&loop = io, weak = weak_from_this()] {
                                            boost::asio::post(loop, [weak] {
                                              if (const auto self = weak.lock())
                                                self->pacer->go_on();
                                            });
                                          });
    pacer.emplace(outgoing, [this](SessionId to, const StoreReply& reply) { say(to, reply); });
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
    Store::Answers answers = store.ask(session, *from.job, request, now, &change);
    if (change && journal != nullptr) {
      const absl::Status written = journal->put(
          {*from.job, request.generation, std::move(change->key), std::move(change->value)});
      if (!written.ok()) return break_down(written);
    }
    pacer->take(std::move(answers));
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
      session->second.run = order.message.envelope.run;
    } else if (std::holds_alternative<Evicted>(order.message.body)) {
      shut_out(order.session, session->second);
    }
    session->second.sink->say(order.message);
  }
  void carry_out(CloseSession& order) { finish(order.session, "the server closed the session"); }
  void carry_out(Persist&) {}  // done first, in persist()
  // Its agents had the outcome and all of the time in which it was kept.
  void carry_out(Forget& order) {
    for (auto& [id, session] : sessions) {
      if (session.job == order.job && session.run == order.run) shut_out(id, session);
    }
  }
  void carry_out(Emit& order) {
    if (!options.on_event) return;
    boost::asio::post(io, [self = shared_from_this(), order = std::move(order)] {
      if (self->options.on_event) self->options.on_event(order.job, order.run, order.event);
    });
  }
  void carry_out(OpenStore& order) { store.open(order.job, order.generation); }
  void carry_out(CloseStore& order) { pacer->take(store.close(order.job, order.generation)); }
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

  void say(SessionId to, const StoreReply& reply) {
    const auto session = sessions.find(to);
    if (session != sessions.end() && session->second.job) session->second.sink->say(reply);
  }

  // A session that is no accepted agent's, or no longer, goes unless a join is accepted on it.
  void shut_out(SessionId id, Session& session) {
    session.job.reset();
    store.forget(id);
    strangers.emplace_back(clock.now(raw_now()) + options.join_within, id);
  }

  // When the first of them goes. Whoever was accepted or is gone meanwhile is passed over here.
  std::optional<Instant> next_stranger() {
    while (!strangers.empty()) {
      const auto session = sessions.find(strangers.front().second);
      if (session != sessions.end() && !session->second.job) return strangers.front().first;
      strangers.pop_front();
    }
    return std::nullopt;
  }

  void expire_strangers(Instant now) {
    for (auto due = next_stranger(); due && *due <= now; due = next_stranger()) {
      const SessionId id = strangers.front().second;
      finish(id, "no join was accepted on this stream within " +
                     format_duration(options.join_within) +
                     "; a stream is for an agent that joins");
      step(StreamLost{id});
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
    const std::optional<Instant> due =
        earlier(earlier(machine.next_deadline(), store.next_deadline()), next_stranger());
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
    pacer->take(store.expire(now));
    expire_strangers(now);
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
  std::shared_ptr<Outgoing> outgoing;
  std::optional<AnswerPacer> pacer;
  boost::asio::steady_timer timer;
  std::optional<Instant> armed;
  std::map<SessionId, Session> sessions;
  std::deque<std::pair<Instant, SessionId>> strangers;  // in the order of their deadlines
  std::map<std::uint64_t, Answered> requests;
  SessionId last_session = 0;
  std::uint64_t last_request = 0;
  bool stopped = false;
  bool closed = false;
  bool broken = false;
};

ServerCore::ServerCore(boost::asio::io_context& io, ServerOptions options)
    : state_(std::make_shared<State>(io, std::move(options))),
      self_(std::make_shared<ServerCore*>(this)) {
  state_->prepare();
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

std::shared_ptr<Outgoing> ServerCore::outgoing() const {
  return state_->outgoing;
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
  State::Session& session = state_->sessions[id];
  session.sink = std::move(sink);
  session.peer_addr = std::move(peer_addr);
  state_->shut_out(id, session);
  state_->arm();
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
  return open_local_session(state_->io, self_, std::move(callbacks));
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
