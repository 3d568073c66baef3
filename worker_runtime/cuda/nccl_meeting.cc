// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cuda/nccl_meeting.h"

#include <algorithm>
#include <charconv>
#include <chrono>

namespace muster::runtime::cuda {
namespace {

// Longer than rank 0 waits for the others, so that its word on who is missing arrives.
constexpr Duration kVerdictSlack = 5s;

class Remaining {
 public:
  explicit Remaining(Duration all) : end_(std::chrono::steady_clock::now() + all) {}
  Duration left() const {
    const Duration left = end_ - std::chrono::steady_clock::now();
    return std::max(left, Duration(0));
  }

 private:
  std::chrono::steady_clock::time_point end_;
};

std::string numbered(const char* name, int number) {
  return std::string(name) + "/" + std::to_string(number);
}

std::string to_hex(const NcclId& id) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const char c : id.bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  return text;
}

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

absl::StatusOr<NcclId> from_hex(const std::string& text) {
  NcclId id{};
  bool good = text.size() == 2 * sizeof(id.bytes);
  for (std::size_t i = 0; good && i < sizeof(id.bytes); ++i) {
    const int high = digit(text[2 * i]);
    const int low = digit(text[2 * i + 1]);
    good = high >= 0 && low >= 0;
    id.bytes[i] = static_cast<char>(high * 16 + low);
  }
  if (good) return id;
  return absl::FailedPreconditionError("an NCCL id in the store does not read");
}

// What rank 0 finds of all; itself included.
absl::Status judge(GenerationStore& store, const Meeting& meeting) {
  const Remaining time(meeting.deadline);
  std::vector<RankFacts> all;
  for (int rank = 0; rank < meeting.size; ++rank) {
    const auto line = store.get(nccl_key(meeting.generation, numbered("facts", rank)), time.left());
    if (absl::IsNotFound(line.status())) {
      return absl::DeadlineExceededError("rank " + std::to_string(rank) +
                                         " did not come to NCCL's start within " +
                                         format_duration(meeting.deadline));
    }
    if (!line.ok()) return line.status();
    auto facts = read_facts_line(*line);
    if (!facts.ok()) return facts.status();
    all.push_back(*std::move(facts));
  }
  return check_ranks(all);
}

}  // namespace

std::string nccl_key(std::int64_t generation, const std::string& name) {
  return "nccl/" + std::to_string(generation) + "/" + name;
}

int id_count(int size, bool scalable) {
  return scalable ? (size + kRanksAnId - 1) / kRanksAnId : 1;
}

int first_rank_of_block(int size, int blocks, int block) {
  return block * (size / blocks) + std::min(block, size % blocks);
}

absl::Status compare_ranks(GenerationStore& store, const Meeting& meeting, const RankFacts& mine) {
  absl::Status set =
      store.set(nccl_key(meeting.generation, numbered("facts", meeting.rank)), facts_line(mine));
  if (!set.ok()) return set;
  const std::string key = nccl_key(meeting.generation, "verdict");
  if (meeting.rank == 0) {
    absl::Status found = judge(store, meeting);
    // "CODE words": the others give back the same.
    set = store.set(
        key, std::to_string(static_cast<int>(found.code())) + " " + std::string(found.message()));
    return found.ok() ? set : found;
  }
  const auto verdict = store.get(key, meeting.deadline + kVerdictSlack);
  if (absl::IsNotFound(verdict.status())) {
    return absl::DeadlineExceededError("rank 0 did not come to NCCL's start within " +
                                       format_duration(meeting.deadline));
  }
  if (!verdict.ok()) return verdict.status();
  int code = -1;
  const char* end = verdict->data() + verdict->size();
  const auto [stop, error] = std::from_chars(verdict->data(), end, code);
  if (error != std::errc{} || stop == end) {
    return absl::FailedPreconditionError("rank 0's verdict does not read: another build?");
  }
  return {static_cast<absl::StatusCode>(code), std::string(stop + 1, end)};
}

absl::StatusOr<std::vector<NcclId>> share_ids(const NcclApi& api, GenerationStore& store,
                                              const Meeting& meeting) {
  const int blocks = id_count(meeting.size, api.ncclCommInitRankScalable != nullptr);
  const Remaining time(meeting.deadline);
  for (int block = 0; block < blocks; ++block) {
    if (first_rank_of_block(meeting.size, blocks, block) != meeting.rank) continue;
    const auto made = store.add(nccl_key(meeting.generation, numbered("made", block)), 1);
    if (!made.ok()) return made.status();
    if (*made != 1) {
      return absl::FailedPreconditionError("generation " + std::to_string(meeting.generation) +
                                           " has had its NCCL communicator: ids are not reused");
    }
    NcclId id{};
    const NcclResult result = api.ncclGetUniqueId(&id);
    if (result != kNcclSuccess) {
      return absl::InternalError("ncclGetUniqueId: " + nccl_words(api, result, nullptr));
    }
    absl::Status set = store.set(nccl_key(meeting.generation, numbered("id", block)), to_hex(id));
    if (!set.ok()) return set;
  }
  std::vector<NcclId> ids;
  for (int block = 0; block < blocks; ++block) {
    const auto text = store.get(nccl_key(meeting.generation, numbered("id", block)), time.left());
    if (absl::IsNotFound(text.status())) {
      return absl::DeadlineExceededError(
          "rank " + std::to_string(first_rank_of_block(meeting.size, blocks, block)) +
          " did not publish its NCCL id within " + format_duration(meeting.deadline));
    }
    if (!text.ok()) return text.status();
    auto id = from_hex(*text);
    if (!id.ok()) return id.status();
    ids.push_back(*id);
  }
  return ids;
}

}  // namespace muster::runtime::cuda
