// SPDX-License-Identifier: Apache-2.0
//
// What NCCL will read besides our configuration: NCCL_* variables, and files that set variables
// without anybody seeing it. Listed once a run; those that are known to hurt are explained.
//
// NCCL's rules (2.18 on): the environment wins; then NCCL_CONF_FILE or, without it, ~/.nccl.conf;
// then /etc/nccl.conf. A file's line is NAME=VALUE, byte for byte; '#' in the first column begins
// a comment.
//
// Thread rule: pure functions, but for nccl_settings_of_process.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muster::runtime::cuda {

struct NcclSetting {
  std::string name;
  std::string value;
  std::string source;  // "environment" or a path
  bool operator==(const NcclSetting&) const = default;
};

// The lines of one file that set something, in their order.
std::vector<NcclSetting> parse_nccl_conf(std::string_view text, const std::string& path);

// What is in force, by name: of each name the first in the order given. Of the environment only
// what NCCL or torch's NCCL layer reads.
std::vector<NcclSetting> settings_in_force(const std::vector<std::string>& environment,
                                           const std::vector<std::vector<NcclSetting>>& files);

// For people: one line with all that is set (none: no line), then one a setting that is dangerous
// here or that comes from a file.
std::vector<std::string> describe_settings(const std::vector<NcclSetting>& settings);

// Environment and files of this process, as NCCL will find them.
std::vector<NcclSetting> nccl_settings_of_process();

}  // namespace muster::runtime::cuda
