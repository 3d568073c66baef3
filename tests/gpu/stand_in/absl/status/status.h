// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for abseil's header of this name, for machines that build gpu-check without abseil:
// as much of its interface as the code under gpu-check uses, with the same meaning.
//
// Thread rule: values.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

namespace absl {

enum class StatusCode : int {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16
};

inline const char* stand_in_code_name(StatusCode code) {
  constexpr const char* kNames[] = {"OK",
                                    "CANCELLED",
                                    "UNKNOWN",
                                    "INVALID_ARGUMENT",
                                    "DEADLINE_EXCEEDED",
                                    "NOT_FOUND",
                                    "ALREADY_EXISTS",
                                    "PERMISSION_DENIED",
                                    "RESOURCE_EXHAUSTED",
                                    "FAILED_PRECONDITION",
                                    "ABORTED",
                                    "OUT_OF_RANGE",
                                    "UNIMPLEMENTED",
                                    "INTERNAL",
                                    "UNAVAILABLE",
                                    "DATA_LOSS",
                                    "UNAUTHENTICATED"};
  return kNames[static_cast<int>(code)];
}

class [[nodiscard]] Status {
 public:
  Status() = default;
  // The message of OK is dropped.
  Status(StatusCode code, std::string_view message)
      : code_(code), message_(code == StatusCode::kOk ? std::string_view() : message) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  std::string_view message() const { return message_; }
  std::string ToString() const {
    if (ok()) return "OK";
    return std::string(stand_in_code_name(code_)) + ": " + message_;
  }
  // Keeps an error that is here already.
  void Update(const Status& other) {
    if (ok()) *this = other;
  }
  void IgnoreError() const {}

  friend bool operator==(const Status& a, const Status& b) {
    return a.code_ == b.code_ && a.message_ == b.message_;
  }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline std::ostream& operator<<(std::ostream& out, const Status& status) {
  return out << status.ToString();
}

inline Status OkStatus() {
  return {};
}

#define MUSTER_STAND_IN_CODE(name)                      \
  inline Status name##Error(std::string_view message) { \
    return {StatusCode::k##name, message};              \
  }                                                     \
  inline bool Is##name(const Status& status) {          \
    return status.code() == StatusCode::k##name;        \
  }
MUSTER_STAND_IN_CODE(Aborted)
MUSTER_STAND_IN_CODE(DataLoss)
MUSTER_STAND_IN_CODE(DeadlineExceeded)
MUSTER_STAND_IN_CODE(FailedPrecondition)
MUSTER_STAND_IN_CODE(Internal)
MUSTER_STAND_IN_CODE(InvalidArgument)
MUSTER_STAND_IN_CODE(NotFound)
MUSTER_STAND_IN_CODE(ResourceExhausted)
MUSTER_STAND_IN_CODE(Unavailable)
#undef MUSTER_STAND_IN_CODE

}  // namespace absl
