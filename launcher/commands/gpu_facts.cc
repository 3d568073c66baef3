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

}  // namespace

std::vector<std::filesystem::path> listed_gpus(const NodeProbe& probe) {
  std::vector<std::filesystem::path> listed;
  std::error_code error;
  const std::filesystem::path folder = probe.proc + "/driver/nvidia/gpus";
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    listed.push_back(entry.path());
  std::sort(listed.begin(), listed.end());
  return listed;
}

// "Model: \t\t NVIDIA H200"
std::string gpu_field(const std::filesystem::path& gpu, std::string_view name) {
  std::ifstream file(gpu / "information");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    std::string value(trim(std::string_view(line).substr(name.size())));
    for (char& c : value) {
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
    }
    return value;
  }
  return "";
}

std::string gpu_line(const NodeProbe& probe) {
  const std::filesystem::path root = probe.proc + "/driver/nvidia";
  std::vector<std::string> models;
  for (const std::filesystem::path& gpu : listed_gpus(probe)) {
    std::string model = gpu_field(gpu, "Model:");
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
