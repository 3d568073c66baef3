// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_cuda/nccl_files.h"

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "proto/base/check.h"

namespace muster::runtime::cuda {
namespace {

// What stands before a part's data.
struct Head {
  FakeOperation operation;
  std::size_t count;
  int type;
  int root;
};

std::size_t bytes_sent(const FakePart& part, int size) {
  const std::size_t bytes = part.count * fake_nccl_size(part.type);
  const bool scatters = part.operation == FakeOperation::kReduceScatter;
  return scatters ? bytes * static_cast<std::size_t>(size) : bytes;
}

// Either all of it is there or nothing.
void write_whole(const std::string& path, const std::string& bytes) {
  const std::string unfinished = path + ".new";
  std::ofstream file(unfinished, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  MUSTER_CHECK(file.good());
  std::filesystem::rename(unfinished, path);
}

std::string part_name(std::uint64_t index, int rank) {
  return std::to_string(index) + "." + std::to_string(rank);
}

}  // namespace

std::string NcclFiles::path(const std::string& id, const std::string& name) const {
  return directory_ + "/" + id + "." + name;
}

void NcclFiles::join(const std::string& id, int rank) const {
  write_whole(path(id, "joined." + std::to_string(rank)), "");
}

bool NcclFiles::all_joined(const std::string& id, int size) const {
  for (int rank = 0; rank < size; ++rank)
    if (!std::filesystem::exists(path(id, "joined." + std::to_string(rank)))) return false;
  return true;
}

void NcclFiles::put(const std::string& id, std::uint64_t index, int rank, int size,
                    const FakePart& part) {
  const Head head{part.operation, part.count, part.type, part.root};
  std::string bytes(sizeof(head) + bytes_sent(part, size), '\0');
  std::memcpy(bytes.data(), &head, sizeof(head));
  std::memcpy(bytes.data() + sizeof(head), part.send, bytes.size() - sizeof(head));
  write_whole(path(id, part_name(index, rank)), bytes);
  // Whoever puts its part of this one has ended the one before; all have ended the one before that.
  if (index >= 2) std::filesystem::remove(path(id, part_name(index - 2, rank)));
}

bool NcclFiles::fetch(const std::string& id, std::uint64_t index, FakeRound& round) const {
  const int size = static_cast<int>(round.parts.size());
  for (int rank = 0; rank < size; ++rank)
    if (!std::filesystem::exists(path(id, part_name(index, rank)))) return false;
  round.sent.resize(round.parts.size());
  for (std::size_t rank = 0; rank < round.parts.size(); ++rank) {
    std::ifstream file(path(id, part_name(index, static_cast<int>(rank))), std::ios::binary);
    std::string& bytes = round.sent[rank];
    bytes.assign(std::istreambuf_iterator<char>(file), {});
    Head head;
    MUSTER_CHECK(bytes.size() >= sizeof(head));
    std::memcpy(&head, bytes.data(), sizeof(head));
    std::optional<FakePart>& part = round.parts[rank];
    void* const receive = part ? part->receive : nullptr;
    part = FakePart{head.operation, bytes.data() + sizeof(head), receive, head.count, head.type,
                    head.root};
  }
  return true;
}

}  // namespace muster::runtime::cuda
