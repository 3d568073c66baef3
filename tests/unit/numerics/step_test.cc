// SPDX-License-Identifier: Apache-2.0
//
// A whole training step (forward, backward, unscale, clip, AdamW) against a reference that shares
// nothing with it: the textbook formulas in complex FP64, differentiated by the complex step
// (f'(x) = Im f(x + ih) / h, exact to FP64's last digits).
#include <algorithm>
#include <cmath>
#include <complex>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/unit/numerics/random.h"
#include "worker_runtime/model/gpt.h"
#include "worker_runtime/optim/optimizer.h"

namespace muster::runtime {
namespace {

using Number = std::complex<double>;
using Row = std::vector<Number>;

const GptConfig kConfig{.n_layer = 2, .n_head = 2, .n_embd = 6, .n_ctx = 5, .vocab_size = 11};
constexpr std::size_t kBatch = 2;
constexpr std::size_t kTime = 4;

// Parameters by name, as the reference sees them.
struct Reference {
  const FlatLayout& layout;
  std::vector<Number> w;

  Row norm(const std::string& name, const Row& x) const {
    const double size = static_cast<double>(x.size());
    Number mean = 0;
    for (const Number& v : x)
      mean += v / size;
    Number variance = 0;
    for (const Number& v : x)
      variance += (v - mean) * (v - mean) / size;
    const Number deviation = std::sqrt(variance + 1e-5);
    const std::size_t weight = layout.find(name + ".weight")->offset;
    const std::size_t bias = layout.find(name + ".bias")->offset;
    Row y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      y[i] = (x[i] - mean) / deviation * w[weight + i] + w[bias + i];
    return y;
  }

  Row linear(const std::string& name, const Row& x, std::size_t out) const {
    const std::size_t weight = layout.find(name + ".weight")->offset;
    const std::size_t bias = layout.find(name + ".bias")->offset;
    Row y(out);
    for (std::size_t o = 0; o < out; ++o) {
      y[o] = w[bias + o];
      for (std::size_t i = 0; i < x.size(); ++i)
        y[o] += x[i] * w[weight + i * out + o];
    }
    return y;
  }

  // Attention of query position t over all earlier ones; qkv of every position.
  Row attend(const std::vector<Row>& qkv, std::size_t t) const {
    const std::size_t c = static_cast<std::size_t>(kConfig.n_embd);
    const std::size_t size = c / static_cast<std::size_t>(kConfig.n_head);
    Row y(c);
    for (std::size_t start = 0; start < c; start += size) {
      Row weights(t + 1);
      Number total = 0;
      for (std::size_t j = 0; j <= t; ++j) {
        Number score = 0;
        for (std::size_t d = start; d < start + size; ++d)
          score += qkv[t][d] * qkv[j][c + d];
        weights[j] = std::exp(score / std::sqrt(static_cast<double>(size)));
        total += weights[j];
      }
      for (std::size_t j = 0; j <= t; ++j) {
        for (std::size_t d = start; d < start + size; ++d)
          y[d] += weights[j] / total * qkv[j][2 * c + d];
      }
    }
    return y;
  }

  void layer(const std::string& h, std::vector<Row>& x) const {
    const std::size_t c = static_cast<std::size_t>(kConfig.n_embd);
    std::vector<Row> qkv;
    for (const Row& row : x)
      qkv.push_back(linear(h + "attn.c_attn", norm(h + "ln_1", row), 3 * c));
    for (std::size_t t = 0; t < x.size(); ++t) {
      const Row attended = linear(h + "attn.c_proj", attend(qkv, t), c);
      for (std::size_t i = 0; i < c; ++i)
        x[t][i] += attended[i];
      Row hidden = linear(h + "mlp.c_fc", norm(h + "ln_2", x[t]), 4 * c);
      for (Number& v : hidden) {
        const double root = std::sqrt(2 / 3.14159265358979323846);
        v = 0.5 * v * (1.0 + std::tanh(root * (v + 0.044715 * v * v * v)));
      }
      const Row out = linear(h + "mlp.c_proj", hidden, c);
      for (std::size_t i = 0; i < c; ++i)
        x[t][i] += out[i];
    }
  }

  // Sum of token losses of one sequence of kTime + 1 tokens.
  Number loss(const std::int32_t* tokens) const {
    const std::size_t c = static_cast<std::size_t>(kConfig.n_embd);
    const std::size_t wte = layout.find("wte.weight")->offset;
    const std::size_t wpe = layout.find("wpe.weight")->offset;
    std::vector<Row> x(kTime, Row(c));
    for (std::size_t t = 0; t < kTime; ++t) {
      for (std::size_t i = 0; i < c; ++i) {
        x[t][i] = w[wte + static_cast<std::size_t>(tokens[t]) * c + i] + w[wpe + t * c + i];
      }
    }
    for (std::int64_t l = 0; l < kConfig.n_layer; ++l)
      layer("h." + std::to_string(l) + ".", x);
    Number total = 0;
    for (std::size_t t = 0; t < kTime; ++t) {
      const Row y = norm("ln_f", x[t]);
      Number sum = 0;
      Number aim = 0;
      for (std::size_t v = 0; v < static_cast<std::size_t>(kConfig.vocab_size); ++v) {
        Number logit = 0;
        for (std::size_t i = 0; i < c; ++i)
          logit += y[i] * w[wte + v * c + i];
        sum += std::exp(logit);
        if (static_cast<std::int32_t>(v) == tokens[t + 1]) aim = logit;
      }
      total += std::log(sum) - aim;
    }
    return total;
  }

  Number loss(const std::vector<std::int32_t>& tokens) const {
    Number total = 0;
    for (std::size_t b = 0; b < kBatch; ++b)
      total += loss(tokens.data() + b * (kTime + 1));
    return total;
  }
};

// One reference step on `w`, `m`, `v`; returns the mean loss.
double reference_step(const FlatLayout& layout, const std::vector<std::int32_t>& tokens,
                      const AdamWOptions& options, int t, double clip, std::vector<double>& w,
                      std::vector<double>& m, std::vector<double>& v) {
  constexpr double kTokens = kBatch * kTime;
  Reference model{layout, std::vector<Number>(w.begin(), w.end())};
  std::vector<double> g(w.size());
  double square = 0;
  for (const TensorInfo& tensor : layout.tensors) {
    for (std::size_t i = tensor.offset; i < tensor.offset + tensor.count; ++i) {
      constexpr double kStep = 1e-100;
      model.w[i] = Number(w[i], kStep);
      g[i] = model.loss(tokens).imag() / kStep / kTokens;
      model.w[i] = w[i];
      square += g[i] * g[i];
    }
  }
  const double loss = model.loss(tokens).real() / kTokens;
  const double factor = std::min(1.0, clip / (std::sqrt(square) + 1e-6));
  for (const TensorInfo& tensor : layout.tensors) {
    for (std::size_t i = tensor.offset; i < tensor.offset + tensor.count; ++i) {
      m[i] = options.beta1 * m[i] + (1 - options.beta1) * factor * g[i];
      v[i] = options.beta2 * v[i] + (1 - options.beta2) * factor * g[i] * factor * g[i];
      const double m_hat = m[i] / (1 - std::pow(options.beta1, t));
      const double v_hat = v[i] / (1 - std::pow(options.beta2, t));
      const double decay = tensor.dims.size() > 1 ? options.weight_decay * w[i] : 0;
      w[i] -= options.learning_rate * (m_hat / (std::sqrt(v_hat) + options.epsilon) + decay);
    }
  }
  return loss;
}

struct Deviation {
  double parameter = 0;
  double moment = 0;
  double loss = 0;
};

// Three steps of both; `scale` is the loss scale.
Deviation compare(Precision precision, double scale, double clip) {
  const FlatLayout layout = flat_layout(kConfig);
  const auto start = random_values<float>(layout.size, 21, 0.5F);
  std::vector<float> master(layout.size), first(layout.size), second(layout.size);
  for (const TensorInfo& tensor : layout.tensors) {
    for (std::size_t i = tensor.offset; i < tensor.offset + tensor.count; ++i)
      master[i] = start[i];
  }
  std::vector<double> w(master.begin(), master.end()), m(layout.size), v(layout.size);
  // An epsilon in the size of gradients: with a tiny one AdamW turns rounding noise of vanishing
  // gradients into whole steps.
  const AdamWOptions options{
      .learning_rate = 0.01, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-2, .weight_decay = 0.1};
  auto gpt = make_gpt(kConfig, precision, kBatch);
  REQUIRE(gpt.ok());
  Deviation worst;
  for (int t = 1; t <= 3; ++t) {
    const auto tokens = random_tokens(kBatch * (kTime + 1), static_cast<std::uint64_t>(t), 11);
    std::vector<float> gradients(layout.size);
    (*gpt)->load_weights(master);
    const double loss = (*gpt)->forward_backward(
        tokens, kBatch, kTime, static_cast<float>(scale / (kBatch * kTime)), gradients);
    REQUIRE(first_non_finite(layout, 0, gradients) == kAllFinite);
    const double norm = norm_of_partials(square_norm_partials(0, gradients), 1 / scale);
    adamw_step(options, static_cast<std::uint64_t>(t), clip_factor(norm, clip) / scale, layout, 0,
               gradients, master, first, second);
    const double expected = reference_step(layout, tokens, options, t, clip, w, m, v);
    worst.loss = std::max(worst.loss, std::fabs(loss / (kBatch * kTime) / expected - 1));
    for (std::size_t i = 0; i < layout.size; ++i) {
      worst.parameter = std::max(worst.parameter, std::fabs(static_cast<double>(master[i]) - w[i]));
      worst.moment = std::max(worst.moment, std::fabs(static_cast<double>(first[i]) - m[i]));
    }
  }
  return worst;
}

TEST_CASE("three training steps in fp32 equal the independent FP64 reference") {
  for (const double clip : {0.2, 1e9}) {  // the gradient's norm is about 2
    CAPTURE(clip);
    const Deviation worst = compare(Precision::kF32, 1, clip);
    CHECK(worst.loss < 1e-6);
    CHECK(worst.moment < 2e-7);
    CHECK(worst.parameter < 1e-6);
  }
}

TEST_CASE("a loss scale that is a power of two changes nothing in fp32") {
  const Deviation worst = compare(Precision::kF32, 65536, 0.2);
  CHECK(worst.moment < 2e-7);
  CHECK(worst.parameter < 1e-6);
}

TEST_CASE("in 16 bits the steps stay within the formats' rounding") {
  const Deviation half = compare(Precision::kF16, 1024, 1);
  CHECK(half.loss < 2e-3);
  CHECK(half.parameter < 2e-3);
  const Deviation brain = compare(Precision::kBf16, 1, 1);
  CHECK(brain.loss < 2e-2);
  CHECK(brain.parameter < 1e-2);
}

}  // namespace
}  // namespace muster::runtime
