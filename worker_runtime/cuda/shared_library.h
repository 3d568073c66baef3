// SPDX-License-Identifier: Apache-2.0
//
// A library that may or may not be on this host, opened by name at run time: one muster-train
// starts on every host, with a GPU or without.
//
// Thread rule: values; opening and finding are safe from any thread.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::runtime::cuda {

class SharedLibrary {
 public:
  // The first of `names` that the dynamic linker finds ("libcuda.so.1"). kNotFound with what it
  // said of each. The library stays loaded until the process ends: drivers do not unload cleanly.
  static absl::StatusOr<SharedLibrary> open(const std::vector<std::string>& names);

  const std::string& name() const { return name_; }
  // nullptr: it has none of this name.
  void* find(const char* symbol) const;

 private:
  SharedLibrary(std::string name, void* handle) : name_(std::move(name)), handle_(handle) {}
  std::string name_;
  void* handle_;
};

}  // namespace muster::runtime::cuda
