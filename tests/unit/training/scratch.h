// SPDX-License-Identifier: Apache-2.0
//
// A directory of the test's own, gone when the test is.
#pragma once

#include <filesystem>
#include <fstream>
#include <stdlib.h>
#include <string>
#include <string_view>
#include <unistd.h>

namespace muster::test {

class Scratch {
 public:
  Scratch() : Scratch(std::filesystem::temp_directory_path()) {}
  // In memory where there is such a place: hundreds of syncs cost nothing there.
  static Scratch in_memory() {
    return ::access("/dev/shm", W_OK) == 0 ? Scratch("/dev/shm") : Scratch();
  }
  explicit Scratch(const std::filesystem::path& parent) {
    std::string name = (parent / "muster-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::string path() const { return path_; }
  std::string operator/(std::string_view below) const { return path_ + "/" + std::string(below); }

  // Writes a file, making the directories on the way.
  std::string write(std::string_view below, std::string_view text) const {
    const std::filesystem::path file = *this / below;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
    return file.string();
  }

 private:
  std::string path_;
};

}  // namespace muster::test
