// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/credentials.h"

#include <utility>

#include "launcher/commands/commands.h"
#include "launcher/commands/node_facts.h"
#include "launcher/commands/text.h"
#include "launcher/commands/token_file.h"
#include "launcher/commands/variables.h"
#include "proto/transport/tls.h"

namespace muster::launcher {
namespace {

constexpr const char* kToken = "token-file";
constexpr const char* kCert = "tls-cert";
constexpr const char* kKey = "tls-key";
constexpr const char* kCa = "tls-ca";

using OfFlag = std::function<std::string(const char* flag)>;

absl::Status headed(const std::string& head, const absl::Status& status) {
  return absl::InvalidArgumentError(cat(head, ": ", status.message()));
}

absl::StatusOr<std::shared_ptr<transport::Tls>> read_tls(const OfFlag& get, const OfFlag& origin) {
  const auto file = [&](const char* flag) { return transport::TlsFile{get(flag), origin(flag)}; };
  const transport::TlsFiles files{file(kCert), file(kKey), file(kCa)};
  const transport::TlsFile* given = nullptr;
  const char* missing = nullptr;
  for (const auto& [flag, at] :
       {std::pair{kCert, &files.cert}, std::pair{kKey, &files.key}, std::pair{kCa, &files.ca}}) {
    if (at->path.empty()) {
      missing = flag;
    } else {
      given = at;
    }
  }
  if (given == nullptr) return nullptr;
  if (missing != nullptr) {
    return absl::InvalidArgumentError(cat(given->origin, ": --", missing,
                                          " is missing; TLS needs all of --tls-cert, --tls-key ",
                                          "and --tls-ca"));
  }
  return transport::Tls::load(files, [](const std::string& line) { say(line); });
}

}  // namespace

std::vector<SmallFlag> credential_flags() {
  return {{kToken, true}, {kCert, true}, {kKey, true}, {kCa, true}};
}

absl::StatusOr<transport::Credentials> read_credentials(const OfFlag& get, const OfFlag& origin) {
  transport::Credentials credentials;
  if (const std::string path = get(kToken); !path.empty()) {
    absl::StatusOr<std::string> token = read_token_file(path);
    if (!token.ok()) return headed(origin(kToken), token.status());
    credentials.token = *std::move(token);
  }
  absl::StatusOr<std::shared_ptr<transport::Tls>> tls = read_tls(get, origin);
  if (!tls.ok()) return tls.status();
  credentials.tls = *std::move(tls);
  return credentials;
}

absl::StatusOr<transport::Credentials> credentials_of(const SmallLine& line) {
  const EnvironmentMap environment = read_environment();
  const auto variable = [](const char* flag) {
    std::string name = "MUSTER_";
    for (const char* at = flag; *at != '\0'; ++at)
      name += *at == '-' ? '_' : static_cast<char>(*at - 'a' + 'A');
    return name;
  };
  return read_credentials(
      [&](const char* flag) {
        if (line.has(flag)) return line.get(flag);
        const auto set = environment.find(variable(flag));
        return set == environment.end() ? std::string() : set->second;
      },
      [&](const char* flag) { return line.has(flag) ? cat("--", flag) : variable(flag); });
}

}  // namespace muster::launcher
