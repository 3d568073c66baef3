// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/cuda/nccl_settings.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <pwd.h>
#include <unistd.h>

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace muster::runtime::cuda {
namespace {

constexpr std::string_view kEnvironment = "environment";

// `when`: the value that is dangerous; empty: any.
struct Danger {
  std::string_view name;
  std::string_view when;
  std::string_view words;
};
constexpr std::array kDangers{
    Danger{"NCCL_ALGO", "",
           "forces one algorithm for every size: slow, or an error where it "
           "does not apply; meant for comparing bits only"},
    Danger{"NCCL_PROTO", "",
           "forces one protocol: slow for most sizes, and LL128 corrupts data "
           "on hardware that NCCL would not choose it for"},
    Danger{"NCCL_P2P_DISABLE", "1",
           "keeps GPUs of one host from talking directly: several times "
           "slower"},
    Danger{"NCCL_P2P_LEVEL", "LOC",
           "keeps GPUs of one host from talking directly: several times "
           "slower"},
    Danger{"NCCL_SHM_DISABLE", "1", "sends what could go through shared memory over the network"},
    Danger{"NCCL_IB_DISABLE", "1", "leaves InfiniBand and RoCE unused: hosts talk over TCP"},
    Danger{"NCCL_COMM_BLOCKING", "1",
           "makes every call wait for all ranks: a rank that is gone "
           "cannot be noticed in time; unset it"},
    Danger{"NCCL_BLOCKING_WAIT", "",
           "is a variable of torch and does nothing here; Muster watches "
           "collectives by itself"},
    Danger{"TORCH_NCCL_BLOCKING_WAIT", "", "is a variable of torch and does nothing here"},
    Danger{"NCCL_ASYNC_ERROR_HANDLING", "",
           "is a variable of torch and does nothing here; Muster "
           "watches collectives by itself"},
    Danger{"NCCL_LAUNCH_MODE", "GROUP",
           "is the old way of launching and can hang with one process "
           "a GPU"},
    Danger{"NCCL_MULTI_RANK_GPU_ENABLE", "1",
           "is experimental: several ranks on one GPU hang when "
           "its resources run out"},
    Danger{"NCCL_IGNORE_CPU_AFFINITY", "1",
           "lets NCCL's threads leave the cores that this worker "
           "was given"},
    Danger{"NCCL_CHECKS_DISABLE", "1", "turns off the checks of arguments"},
    Danger{"NCCL_DEBUG", "TRACE", "writes a line for every operation"},
    Danger{"NCCL_SOCKET_IFNAME", "lo",
           "restricts NCCL to the loopback interface: other hosts "
           "cannot be reached"},
};

bool is_dangerous(const Danger& danger, const NcclSetting& setting) {
  return danger.name == setting.name && (danger.when.empty() || danger.when == setting.value);
}

bool concerns_nccl(std::string_view name) {
  return name.starts_with("NCCL_") || name == "TORCH_NCCL_BLOCKING_WAIT";
}

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}

std::vector<NcclSetting> file_settings(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  std::getline(file, text, '\0');  // all of it
  return parse_nccl_conf(text, path);
}

}  // namespace

std::vector<NcclSetting> parse_nccl_conf(std::string_view text, const std::string& path) {
  std::vector<NcclSetting> settings;
  while (!text.empty()) {
    const std::size_t length = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, length);
    text.remove_prefix(std::min(length + 1, text.size()));
    const std::size_t equals = line.find('=');
    if (line.starts_with('#') || equals == std::string_view::npos || equals == 0) continue;
    settings.push_back(
        {std::string(line.substr(0, equals)), std::string(line.substr(equals + 1)), path});
  }
  return settings;
}

std::vector<NcclSetting> settings_in_force(const std::vector<std::string>& environment,
                                           const std::vector<std::vector<NcclSetting>>& files) {
  std::map<std::string, NcclSetting> found;
  for (const std::string& entry : environment) {
    const std::size_t equals = entry.find('=');
    const std::string name = entry.substr(0, equals);
    if (equals == std::string::npos || !concerns_nccl(name)) continue;
    found.try_emplace(name, NcclSetting{name, entry.substr(equals + 1), std::string(kEnvironment)});
  }
  for (const auto& file : files)
    for (const NcclSetting& setting : file)
      found.try_emplace(setting.name, setting);
  std::vector<NcclSetting> settings;
  settings.reserve(found.size());
  for (auto& [name, setting] : found)
    settings.push_back(std::move(setting));
  return settings;
}

std::vector<std::string> describe_settings(const std::vector<NcclSetting>& settings) {
  std::vector<std::string> lines;
  if (settings.empty()) return lines;
  std::string all = "NCCL settings:";
  for (const NcclSetting& setting : settings) {
    all.append(" ").append(setting.name).append("=").append(setting.value);
    if (setting.source != kEnvironment) all.append(" (").append(setting.source).append(")");
  }
  lines.push_back(all);
  for (const NcclSetting& setting : settings) {
    const std::string what = setting.name + "=" + setting.value;
    const std::string where = setting.source == kEnvironment ? "" : " in " + setting.source;
    for (const Danger& danger : kDangers)
      if (is_dangerous(danger, setting)) {
        lines.push_back(what + where + " " + std::string(danger.words));
      }
    const bool padded = !setting.name.empty() && is_blank(setting.name.back());
    if (padded || (!setting.value.empty() &&
                   (is_blank(setting.value.front()) || is_blank(setting.value.back())))) {
      lines.push_back("blanks around the '=' or at the end of \"" + what + "\"" + where +
                      " belong to the name or the value: NCCL will not read it as meant");
    }
  }
  return lines;
}

std::vector<NcclSetting> nccl_settings_of_process() {
  std::vector<std::string> environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    environment.emplace_back(*entry);
  std::vector<std::vector<NcclSetting>> files;
  const char* own = std::getenv("NCCL_CONF_FILE");
  if (own != nullptr && *own != '\0') {
    files.push_back(file_settings(own));
  } else if (const passwd* user = ::getpwuid(::getuid()); user != nullptr) {
    files.push_back(file_settings(std::string(user->pw_dir) + "/.nccl.conf"));
  }
  files.push_back(file_settings("/etc/nccl.conf"));
  return settings_in_force(environment, files);
}

}  // namespace muster::runtime::cuda
