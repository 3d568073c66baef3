// SPDX-License-Identifier: Apache-2.0
//
// See status.h beside this.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <type_traits>
#include <utility>

#include <absl/status/status.h>

namespace absl {

template <class T>
class StatusOr;

template <class T>
inline constexpr bool kIsStatusOr = false;
template <class T>
inline constexpr bool kIsStatusOr<StatusOr<T>> = true;

// A value, or the error for which there is none. Taking the value of an error ends the process.
template <class T>
class [[nodiscard]] StatusOr {
 public:
  using value_type = T;

  StatusOr() : status_(StatusCode::kUnknown, "") {}
  template <class U>
  requires(std::is_convertible_v<U, Status> && !kIsStatusOr<std::decay_t<U>> &&
           !std::is_convertible_v<U, T>) StatusOr(U&& status)
      : status_(std::forward<U>(status)) {
    if (status_.ok()) status_ = InternalError("an error that is OK");
  }
  template <class U = T>
  requires(std::is_convertible_v<U, T> && !kIsStatusOr<std::decay_t<U>>) StatusOr(U&& value)
      : value_(std::forward<U>(value)) {}
  template <class U>
  requires(std::is_convertible_v<U, T> && !std::is_same_v<U, T>) StatusOr(StatusOr<U>&& other)
      : status_(other.status()) {
    if (other.ok()) value_.emplace(*std::move(other));
  }

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }

  T& value() & { return checked(*this); }
  const T& value() const& { return checked(*this); }
  T&& value() && { return std::move(checked(*this)); }
  T& operator*() & { return checked(*this); }
  const T& operator*() const& { return checked(*this); }
  T&& operator*() && { return std::move(checked(*this)); }
  T* operator->() { return &checked(*this); }
  const T* operator->() const { return &checked(*this); }

 private:
  template <class Self>
  static auto& checked(Self& self) {
    if (!self.value_.has_value()) {
      std::fprintf(stderr, "value of an error: %s\n", self.status_.ToString().c_str());
      std::abort();
    }
    return *self.value_;
  }

  Status status_;
  std::optional<T> value_;
};

}  // namespace absl
