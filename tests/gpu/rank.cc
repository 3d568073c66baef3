// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/rank.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <unistd.h>

#include "tests/gpu/context.h"
#include "tests/gpu/socket_group.h"
#include "tests/gpu/training.h"

namespace muster::runtime::cuda::gpu_check {
namespace {

constexpr int kExitPeerLost = 81;
constexpr int kExitDevice = 85;

void say(const RankOrder& order, const std::string& text) {
  const std::string line = std::to_string(order.rank) + " " + text + "\n";
  // Shorter than PIPE_BUF, so whole.
  [[maybe_unused]] const ssize_t written = ::write(order.says, line.data(), line.size());
}

std::string state_path(const std::string& folder, std::uint64_t step) {
  return folder + "/state-" + std::to_string(step);
}

// The newest state of the run; kNotFound: there is none.
absl::StatusOr<TrainingState> newest(const RankOrder& order) {
  for (std::uint64_t step = order.steps; step > 0; --step) {
    const std::string path = state_path(order.folder, step);
    if (std::filesystem::exists(path)) return load(path);
  }
  return absl::NotFoundError("no state");
}

absl::Status train(const RankOrder& order, const Opened& opened, Collectives& group) {
  const TrainingPlan plan = small_plan(order.on_fakes, order.precision);
  auto training = Training::start(plan, opened, group, [&](const ExchangeRoom& room) {
    return make_staged_exchange(opened.device, group, WireType::kF32, flat_layout(plan.model).hash,
                                room);
  });
  if (!training.ok()) return training.status();
  std::uint64_t step = 0;
  if (auto state = newest(order); state.ok()) {
    step = state->step;
    absl::Status resumed = (*training)->resume(*std::move(state));
    if (!resumed.ok()) return resumed;
  }
  say(order, "start " + std::to_string(step));
  while (step < order.steps) {
    const auto loss = (*training)->step();
    if (!loss.ok()) return loss.status();
    ++step;
    const bool saves = order.rank == 0 && (step % order.save_every == 0 || step == order.steps);
    if (saves) {
      const auto state = (*training)->state();
      if (!state.ok()) return state.status();
      absl::Status saved = save(*state, state_path(order.folder, step));
      if (!saved.ok()) return saved;
    }
    say(order, "step " + std::to_string(step));
  }
  const auto state = (*training)->state();
  if (!state.ok()) return state.status();
  say(order, "end " + std::to_string(digest(*state)));
  return (*training)->close();
}

RankOrder read_order(int argc, char** argv) {
  RankOrder order;
  int at = 2;  // in the order of command_of
  const auto next = [&] { return at < argc ? std::string(argv[at++]) : std::string("0"); };
  order.rank = std::stoi(next());
  const int size = std::stoi(next());
  for (int i = 0; i < size; ++i)
    order.sockets.push_back(std::stoi(next()));
  order.generation = std::stoll(next());
  order.precision = static_cast<Precision>(std::stoi(next()));
  order.steps = std::stoull(next());
  order.save_every = std::stoull(next());
  order.folder = next();
  order.says = std::stoi(next());
  order.on_fakes = next() == "1";
  return order;
}

}  // namespace

std::vector<std::string> command_of(const std::string& program, const RankOrder& order) {
  std::vector<std::string> command{program, "--rank", std::to_string(order.rank),
                                   std::to_string(order.sockets.size())};
  for (const int socket : order.sockets)
    command.push_back(std::to_string(socket));
  for (const std::uint64_t number :
       {static_cast<std::uint64_t>(order.generation), static_cast<std::uint64_t>(order.precision),
        order.steps, order.save_every}) {
    command.push_back(std::to_string(number));
  }
  command.push_back(order.folder);
  command.push_back(std::to_string(order.says));
  command.emplace_back(order.on_fakes ? "1" : "0");
  return command;
}

int run_rank(int argc, char** argv) {
  const RankOrder order = read_order(argc, argv);
  Context context;
  if (order.on_fakes) context.libraries = fake_libraries();
  const auto group =
      make_socket_group(order.rank, order.sockets, order.generation, std::chrono::seconds(60));
  auto opened = open_device(context);
  const absl::Status status = opened.ok() ? train(order, *opened, *group) : opened.status();
  if (status.ok()) return 0;
  say(order, "error " + status.ToString());
  return absl::IsUnavailable(status) ? kExitPeerLost : kExitDevice;
}

}  // namespace muster::runtime::cuda::gpu_check
