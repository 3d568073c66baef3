// SPDX-License-Identifier: Apache-2.0
//
// Where a run's lines go: each in one write, to standard output and a metrics file. A reader that
// went away costs one note, never the run.
//
// Thread rule: one thread.
#pragma once

#include <functional>
#include <string>

#include <absl/status/statusor.h>

namespace muster::runtime {

class LineOutput {
 public:
  // Appends to `metrics` too, unless it is empty. kInvalidArgument: it cannot be opened.
  static absl::StatusOr<LineOutput> open(const std::string& metrics,
                                         std::function<void(const std::string&)> note);
  LineOutput(LineOutput&& other) noexcept;
  LineOutput& operator=(LineOutput&&) = delete;
  ~LineOutput();

  // `line` without its newline.
  void write(const std::string& line);

 private:
  LineOutput(int metrics, std::string name, std::function<void(const std::string&)> note);
  void put(int& fd, const std::string& name, const std::string& text);

  int standard_;
  int metrics_;
  std::string name_;
  std::function<void(const std::string&)> note_;
};

}  // namespace muster::runtime
