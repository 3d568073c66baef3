// SPDX-License-Identifier: Apache-2.0
//
// Samples cut from a corpus. Window i is the n_ctx + 1 tokens from i * n_ctx on: the last token
// of one window is the first of the next, so that every token but the first is predicted once.
// The last part of the windows is for validation and never trained on.
//
// Training samples are numbered 0, 1, 2, … without end: sample s is place s % train_windows of
// epoch s / train_windows. The number of samples consumed is all that a checkpoint keeps.
//
// Thread rule: immutable after make(); any thread may read.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <absl/status/statusor.h>

#include "worker_runtime/data/corpus.h"

namespace muster::runtime {

// Tokens are bytes: a model needs at least this vocabulary.
inline constexpr std::int64_t kByteVocabulary = 256;

struct DatasetOptions {
  std::int64_t n_ctx = 0;  // tokens predicted a window [>= 1]
  std::int64_t vocab_size = 0;
  double validation = 0.05;  // share of the windows [0, 1); above 0 at least one window
  std::uint64_t seed = 0;    // of the order
};

class Dataset {
 public:
  // kInvalidArgument, naming the corpus and the need: vocabulary below 256, context too long
  // for the text, nothing left to train on.
  static absl::StatusOr<Dataset> make(std::shared_ptr<const Corpus> corpus,
                                      const DatasetOptions& options);

  std::uint64_t train_windows() const { return train_windows_; }
  std::uint64_t validation_windows() const { return validation_windows_; }
  std::int64_t window_tokens() const { return options_.n_ctx + 1; }
  const Corpus& corpus() const { return *corpus_; }

  // The window that training sample `sample` is.
  std::uint64_t window_of(std::uint64_t sample) const;

  // Samples [first, first + count) as (count, n_ctx + 1) tokens, row-major.
  // REQUIRES out.size() == count * window_tokens().
  void train_batch(std::uint64_t first, std::uint64_t count, std::span<std::int32_t> out) const;

  // Validation windows [first, first + count), in the order of the text.
  void validation_batch(std::uint64_t first, std::uint64_t count,
                        std::span<std::int32_t> out) const;

 private:
  Dataset(std::shared_ptr<const Corpus> corpus, const DatasetOptions& options)
      : corpus_(std::move(corpus)), options_(options) {}
  void copy_window(std::uint64_t window, std::span<std::int32_t> out) const;

  std::shared_ptr<const Corpus> corpus_;
  DatasetOptions options_;
  std::uint64_t train_windows_ = 0;
  std::uint64_t validation_windows_ = 0;
};

}  // namespace muster::runtime
