// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/core/run_id.h"

#include <chrono>
#include <string>

namespace muster::rendezvous {

namespace {

void append_digits(std::string& text, std::int64_t value, std::size_t width) {
  const std::string digits = std::to_string(value);
  if (digits.size() < width) text.append(width - digits.size(), '0');
  text += digits;
}

}  // namespace

RunId mint_run_id(std::int64_t unix_us, Rng& rng) {
  const std::chrono::sys_seconds second{std::chrono::seconds(unix_us / 1000000)};
  const auto day = std::chrono::floor<std::chrono::days>(second);
  const std::chrono::year_month_day date{day};
  const std::chrono::hh_mm_ss time{second - day};
  std::string id;
  append_digits(id, static_cast<int>(date.year()), 4);
  append_digits(id, static_cast<unsigned>(date.month()), 2);
  append_digits(id, static_cast<unsigned>(date.day()), 2);
  id += 'T';
  append_digits(id, time.hours().count(), 2);
  append_digits(id, time.minutes().count(), 2);
  append_digits(id, time.seconds().count(), 2);
  id += "Z-";
  const std::uint64_t bits = rng.next();
  for (const unsigned shift : {12U, 8U, 4U, 0U}) {
    id += "0123456789abcdef"[(bits >> shift) & 0xfU];
  }
  return id;
}

}  // namespace muster::rendezvous
