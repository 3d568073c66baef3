// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/directory_store.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>

namespace muster::runtime::cuda::gpu_check {

std::string DirectoryStore::path_of(const std::string& key) const {
  std::string name = key;
  for (char& c : name)
    if (c == '/') c = '.';
  return directory_ + "/" + name;
}

absl::StatusOr<std::string> DirectoryStore::read(const std::string& key) const {
  std::ifstream file(path_of(key), std::ios::binary);
  if (!file.good()) return absl::NotFoundError(key);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

absl::Status DirectoryStore::write(const std::string& key, const std::string& value) {
  const std::string path = path_of(key);
  const std::string part = path + ".part";
  std::ofstream file(part, std::ios::binary);
  file << value;
  file.close();
  if (!file.good() || std::rename(part.c_str(), path.c_str()) != 0) {
    return absl::InternalError("cannot write " + path);
  }
  return absl::OkStatus();
}

absl::Status DirectoryStore::set(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  return write(key, value);
}

absl::StatusOr<std::string> DirectoryStore::get(const std::string& key, Duration wait) {
  const auto until = std::chrono::steady_clock::now() + wait;
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      auto value = read(key);
      if (value.ok() || std::chrono::steady_clock::now() >= until) return value;
    }
    std::this_thread::sleep_for(5ms);
  }
}

absl::StatusOr<std::int64_t> DirectoryStore::add(const std::string& key, std::int64_t delta) {
  const std::lock_guard lock(mutex_);
  const auto before = read(key);
  const std::int64_t sum = (before.ok() ? std::atoll(before->c_str()) : 0) + delta;
  const absl::Status written = write(key, std::to_string(sum));
  if (!written.ok()) return written;
  return sum;
}

}  // namespace muster::runtime::cuda::gpu_check
