// SPDX-License-Identifier: Apache-2.0
//
// A directory that is gone when the test is.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "proto/base/check.h"

namespace muster::testing {

class TempDir {
 public:
  TempDir() {
    std::string name = std::filesystem::temp_directory_path().string() + "/muster-test-XXXXXX";
    MUSTER_CHECK(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace muster::testing
