// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/gpu_facts.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <vector>

#include "launcher/commands/text.h"

namespace muster::launcher {
namespace {

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 …", or with "Open Kernel
// Module for x86_64": the first word that is digits and dots, with a dot.
std::string driver_version(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return "";
  for (const std::string_view word : split(line, ' ')) {
    const bool is_version = word.find('.') != std::string_view::npos &&
                            word.find_first_not_of("0123456789.") == std::string_view::npos;
    if (is_version) return std::string(word);
  }
  return "";
}

// "Model: \t\t NVIDIA H200" of one device's information.
std::string model_in(const std::filesystem::path& path) {
  constexpr std::string_view kModel = "Model:";
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(kModel)) {
      std::string model(trim(std::string_view(line).substr(kModel.size())));
      for (char& c : model) {
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
      }
      return model;
    }
  }
  return "";
}

}  // namespace

std::string gpu_line(const NodeProbe& probe) {
  const std::filesystem::path root = probe.proc + "/driver/nvidia";
  std::error_code error;
  std::vector<std::filesystem::path> devices;
  for (const auto& entry : std::filesystem::directory_iterator(root / "gpus", error))
    devices.push_back(entry.path());
  std::sort(devices.begin(), devices.end());  // by the bus
  std::vector<std::string> models;
  for (const std::filesystem::path& device : devices) {
    std::string model = model_in(device / "information");
    const bool is_new = std::find(models.begin(), models.end(), model) == models.end();
    if (!model.empty() && is_new) models.push_back(std::move(model));
  }
  std::string line;
  for (const std::string& model : models)
    line += cat(line.empty() ? "" : " and ", model);
  const std::string driver = driver_version((root / "version").string());
  if (!driver.empty()) line += cat(line.empty() ? "" : ", ", "driver ", driver);
  return line;
}

}  // namespace muster::launcher
