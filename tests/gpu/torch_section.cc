// SPDX-License-Identifier: Apache-2.0
//
// The same model in PyTorch, by another program (scripts/gpu_check_torch.py), whose lines are JSON
// objects of one level: {"what": "…", "value": 1.5, "unit": "…", "note": "…"}.
#include <array>
#include <cstdlib>
#include <sstream>
#include <sys/wait.h>

#include "tests/gpu/context.h"

namespace muster::runtime::cuda::gpu_check {
namespace {

// What stands after "name": in the line; "" without it. No text has quotes in it.
std::string field(const std::string& line, const std::string& name) {
  const std::string key = "\"" + name + "\": ";
  const std::size_t at = line.find(key);
  if (at == std::string::npos) return "";
  const std::size_t from = at + key.size();
  if (line[from] == '"') return line.substr(from + 1, line.find('"', from + 1) - from - 1);
  return line.substr(from, line.find_first_of(",}", from) - from);
}

void take(const Context& context, const std::string& line) {
  const std::string what = field(line, "what");
  const std::string value = field(line, "value");
  if (what.empty()) return;
  if (value.empty()) {
    context.report->fact(what, field(line, "note"));
  } else {
    context.report->figure(what, std::strtod(value.c_str(), nullptr), field(line, "unit"), 0,
                           field(line, "note"));
  }
}

}  // namespace

absl::Status measure_torch(const Context& context) {
  if (context.torch.empty()) {
    context.report->fact("PyTorch", "not asked for (--torch)");
    return absl::OkStatus();
  }
  std::FILE* output = ::popen(context.torch.c_str(), "r");
  if (output == nullptr) return absl::InternalError("cannot start " + context.torch);
  std::array<char, 1024> line;
  while (std::fgets(line.data(), static_cast<int>(line.size()), output) != nullptr)
    take(context, line.data());
  const int status = ::pclose(output);
  if (status != 0) context.report->fact("PyTorch", "ended with " + std::to_string(status));
  return absl::OkStatus();
}

}  // namespace muster::runtime::cuda::gpu_check
