// SPDX-License-Identifier: Apache-2.0
//
// A worker's view of the job's key-value store: what ranks of one generation use to find each
// other. Speaks gRPC to the local agent (MUSTER_STORE), which passes requests on to the server.
// Keys belong to one (job, generation); when the generation ends every waiting call returns
// kAborted ("stale") and so does every later one.
//
// Thread rule: any thread; calls block. One client may be used by several threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "proto/base/ids.h"
#include "proto/base/time.h"

namespace muster::runtime {

class StoreClient {
 public:
  struct Config {
    std::string endpoint;  // "127.0.0.1:port"
    std::string token;
    JobId job;
    Generation generation = kNoGeneration;
    Duration call_timeout = 30s;  // for calls that do not wait for a key
  };

  // Reads MUSTER_STORE, MUSTER_STORE_TOKEN_FILE, MUSTER_JOB_ID and MUSTER_GENERATION.
  // kNotFound: MUSTER_STORE is not set (not started by `muster run`). kInvalidArgument: one of
  // the others is missing or malformed; the message names it.
  static absl::StatusOr<Config> config_from_environment();

  explicit StoreClient(Config config);
  ~StoreClient();
  StoreClient(const StoreClient&) = delete;
  StoreClient& operator=(const StoreClient&) = delete;

  // Errors of all calls: kAborted, the generation is over; kResourceExhausted or
  // kInvalidArgument, a limit (the message says which); kUnauthenticated, a wrong token;
  // kUnavailable, the agent or the server is not reachable; kDeadlineExceeded.
  absl::Status set(const std::string& key, const std::string& value);
  // Waits until the key exists. kNotFound: it did not within `wait`.
  absl::StatusOr<std::string> get(const std::string& key, Duration wait);
  // Adds to the decimal number under the key (missing: 0) and returns the sum.
  absl::StatusOr<std::int64_t> add(const std::string& key, std::int64_t delta);
  // kNotFound: there was no such key.
  absl::Status remove(const std::string& key);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace muster::runtime
