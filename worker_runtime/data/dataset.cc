// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/data/dataset.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <absl/status/status.h>

#include "proto/base/check.h"
#include "worker_runtime/data/order.h"

namespace muster::runtime {

absl::StatusOr<Dataset> Dataset::make(std::shared_ptr<const Corpus> corpus,
                                      const DatasetOptions& options) {
  MUSTER_CHECK(options.n_ctx >= 1);
  MUSTER_CHECK(options.validation >= 0 && options.validation < 1);
  if (options.vocab_size < kByteVocabulary) {
    return absl::InvalidArgumentError(
        "corpus " + corpus->path +
        " is read as bytes, which needs /model/vocab_size >= 256; it is " +
        std::to_string(options.vocab_size));
  }
  const std::uint64_t tokens = corpus->bytes.size();
  const auto n_ctx = static_cast<std::uint64_t>(options.n_ctx);
  const std::uint64_t windows = tokens == 0 ? 0 : (tokens - 1) / n_ctx;
  const std::uint64_t needed = options.validation > 0 ? 2 : 1;
  if (windows < needed) {
    return absl::InvalidArgumentError(
        "corpus " + corpus->path + " has " + std::to_string(tokens) + " bytes; /model/n_ctx " +
        std::to_string(n_ctx) + " needs at least " + std::to_string(needed * n_ctx + 1) +
        (needed == 2 ? " (one window to train on, one for validation)" : " (one window)"));
  }
  Dataset dataset(std::move(corpus), options);
  if (options.validation > 0) {
    const double share = std::floor(static_cast<double>(windows) * options.validation);
    dataset.validation_windows_ =
        std::clamp<std::uint64_t>(static_cast<std::uint64_t>(share), 1, windows - 1);
  }
  dataset.train_windows_ = windows - dataset.validation_windows_;
  return dataset;
}

std::uint64_t Dataset::window_of(std::uint64_t sample) const {
  return permuted(sample % train_windows_, train_windows_, options_.seed, sample / train_windows_);
}

void Dataset::train_batch(std::uint64_t first, std::uint64_t count,
                          std::span<std::int32_t> out) const {
  const auto row = static_cast<std::size_t>(window_tokens());
  MUSTER_CHECK(out.size() == count * row);
  for (std::uint64_t i = 0; i < count; ++i) {
    copy_window(window_of(first + i), out.subspan(i * row, row));
  }
}

void Dataset::validation_batch(std::uint64_t first, std::uint64_t count,
                               std::span<std::int32_t> out) const {
  const auto row = static_cast<std::size_t>(window_tokens());
  MUSTER_CHECK(first + count <= validation_windows_);
  MUSTER_CHECK(out.size() == count * row);
  for (std::uint64_t i = 0; i < count; ++i) {
    copy_window(train_windows_ + first + i, out.subspan(i * row, row));
  }
}

void Dataset::copy_window(std::uint64_t window, std::span<std::int32_t> out) const {
  const std::size_t start = window * static_cast<std::uint64_t>(options_.n_ctx);
  std::copy_n(corpus_->bytes.begin() + static_cast<std::ptrdiff_t>(start), out.size(), out.begin());
}

}  // namespace muster::runtime
