// SPDX-License-Identifier: Apache-2.0
//
// Writes Prometheus' text format, version 0.0.4: families in the order given, each with its HELP
// and TYPE, then its samples.
//
// Thread rule: not thread-safe; one owner. Source: prometheus.io, "Exposition formats".
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace muster::http {

class MetricsText {
 public:
  using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

  // `name` is a metric's; samples that follow are its. `help` has no line end.
  void counter(std::string_view name, std::string_view help) { family(name, "counter", help); }
  void gauge(std::string_view name, std::string_view help) { family(name, "gauge", help); }

  // Values of labels may be any bytes; what is not UTF-8 is the reader's affair.
  void sample(double value, Labels labels = {});

  const std::string& text() const { return text_; }

 private:
  void family(std::string_view name, std::string_view type, std::string_view help);

  std::string name_;
  std::string text_;
};

}  // namespace muster::http
