// SPDX-License-Identifier: Apache-2.0
//
// The decoder's forward and backward pass, written once for every number format. S is how
// activations are stored, A (kernels.h) in which we compute. S = double is the instance that
// tests differentiate numerically; it is the same code with our own matrix product.
//
// What is rounded to S: the residual stream, outputs of LayerNorm, GELU, attention and linear
// layers, softmax probabilities and logit gradients where they enter a product, and the gradients
// of all these. What is A: statistics, logits, losses, sums, parameter gradients. Weights are
// rounded to S and kept widened, because that is how the products read them.
//
// A gradient of a parameter is completed here (the leaf of one micro-batch) and then added once,
// so that accumulating over micro-batches gives the same bits as adding their gradients apart.
//
// Thread rule: one thread per object at a time, inside a ComputeScope.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "proto/base/check.h"
#include "worker_runtime/cpu/aligned.h"
#include "worker_runtime/cpu/kernels.h"
#include "worker_runtime/cpu/matmul.h"
#include "worker_runtime/model/gpt.h"

namespace muster::runtime {

// Products by our own kernel: any instruction set gives the same bits. For FP64 and for tests.
template <class S>
class OwnProducts {
 public:
  using A = Accumulator<S>;
  explicit OwnProducts(Isa isa) : kernels_(kernels<S>(isa)) {}
  void run(const ProductShape& s, const A* a, const A* b, A* c) {
    const std::size_t columns = (s.n + 15) / 16 * 16;
    const std::size_t needed = (s.k + 4) * columns;
    if (scratch_.size() < needed) scratch_ = AlignedArray<A>(needed);
    kernels_.product(s.transpose_a, s.transpose_b, s.add, s.m, s.n, s.k, a,
                     s.transpose_a ? s.m : s.k, b, s.transpose_b ? s.k : s.n, c, scratch_.data());
  }

 private:
  const Kernels<S>& kernels_;
  AlignedArray<A> scratch_;
};

template <class S, class Products>
class GptModel {
 public:
  using A = Accumulator<S>;

  // The head works in slices of rows with at most `logits_room` logits (and at least 16 rows), so
  // that a large vocabulary needs little memory.
  GptModel(const GptConfig& config, std::int64_t max_batch, Isa isa, Products products,
           std::size_t logits_room = std::size_t{1} << 22);

  void load_weights(std::span<const A> master);

  // The sum of token losses. With `gradients` (layout.size) also the backward pass, which adds.
  double run(std::span<const std::int32_t> tokens, std::int64_t batch, std::int64_t time, A scale,
             A* gradients);

  const FlatLayout& layout() const { return layout_; }

 private:
  struct Norm {
    std::size_t weight, bias;  // offsets in the flat layout
    AlignedArray<A> mean, rstd;
    AlignedArray<S> out;
  };
  struct Linear {
    std::size_t weight, bias;
    std::size_t in, out;
  };
  struct Layer {
    AlignedArray<S> x, qkv, attended, middle, pre, act;
    AlignedArray<A> stats;
    Norm norm1, norm2;
    Linear attn, attn_out, fc, fc_out;
  };

  Norm make_norm(const std::string& name) const;
  Linear make_linear(const std::string& name, std::size_t in, std::size_t out) const;
  Layer make_layer(std::int64_t index) const;
  std::size_t offset_of(const std::string& name) const;

  const A* weight(std::size_t offset) const { return weights_.data() + offset; }
  const A* wide(const S* values, std::size_t count, AlignedArray<A>& room) const;
  AttentionShape attention_shape() const { return {time_, heads_, width_ / heads_}; }

  void norm_forward(Norm& norm, const S* x);
  void norm_backward(const Norm& norm, const S* x, bool replace);
  void linear_forward(const Linear& linear, const S* x);
  void linear_backward(const Linear& linear, const S* x, const S* dy);
  void layer_forward(Layer& layer, S* next);
  void layer_backward(const Layer& layer);
  double head(A scale);
  void publish(std::size_t offset, const A* leaf, std::size_t count);

  GptConfig config_;
  FlatLayout layout_;
  const Kernels<S>& k_;
  Products products_;
  std::size_t width_, heads_, vocabulary_, max_batch_, max_rows_, head_rows_;
  AlignedArray<A> weights_;
  std::vector<Layer> layers_;
  AlignedArray<S> last_;  // residual stream after the last layer
  Norm last_norm_;
  std::size_t wte_, wpe_;

  // Of the micro-batch that runs now.
  const std::int32_t* tokens_ = nullptr;
  std::size_t batch_ = 0, time_ = 0, rows_ = 0;
  A* gradients_ = nullptr;

  AlignedArray<A> wide_x_, wide_y_;  // operands of products, widened
  AlignedArray<A> product_;          // result of a product
  AlignedArray<A> leaf_, wte_leaf_;  // gradient of one tensor
  AlignedArray<A> logits_, scratch_;
  AlignedArray<S> dlogits_, dx_, dwide_;
};

template <class S, class P>
GptModel<S, P>::GptModel(const GptConfig& config, std::int64_t max_batch, Isa isa, P products,
                         std::size_t logits_room)
    : config_(config),
      layout_(flat_layout(config)),
      k_(kernels<S>(isa)),
      products_(std::move(products)),
      width_(static_cast<std::size_t>(config.n_embd)),
      heads_(static_cast<std::size_t>(config.n_head)),
      vocabulary_(static_cast<std::size_t>(config.vocab_size)),
      max_batch_(static_cast<std::size_t>(max_batch)),
      max_rows_(max_batch_ * static_cast<std::size_t>(config.n_ctx)),
      head_rows_(std::min(max_rows_, std::max<std::size_t>(16, logits_room / vocabulary_))),
      weights_(layout_.size),
      last_(max_rows_ * width_),
      last_norm_(make_norm("ln_f")),
      wte_(offset_of("wte.weight")),
      wpe_(offset_of("wpe.weight")) {
  for (std::int64_t l = 0; l < config.n_layer; ++l)
    layers_.push_back(make_layer(l));
  std::size_t largest = 0;
  for (const TensorInfo& tensor : layout_.tensors) {
    if (tensor.name != "wte.weight") largest = std::max(largest, tensor.count);
  }
  const std::size_t logits = head_rows_ * vocabulary_;
  wide_x_ = AlignedArray<A>(sizeof(S) == sizeof(A) ? 0 : max_rows_ * 4 * width_);
  wide_y_ = AlignedArray<A>(sizeof(S) == sizeof(A) ? 0 : std::max(max_rows_ * 4 * width_, logits));
  product_ = AlignedArray<A>(max_rows_ * 4 * width_);
  leaf_ = AlignedArray<A>(largest);
  wte_leaf_ = AlignedArray<A>(vocabulary_ * width_);
  logits_ = AlignedArray<A>(logits);
  dlogits_ = AlignedArray<S>(logits);
  dx_ = AlignedArray<S>(max_rows_ * width_);
  dwide_ = AlignedArray<S>(max_rows_ * 4 * width_);
  time_ = static_cast<std::size_t>(config.n_ctx);
  scratch_ = AlignedArray<A>(std::max(2 * width_, attention_scratch(attention_shape())));
}

template <class S, class P>
std::size_t GptModel<S, P>::offset_of(const std::string& name) const {
  const TensorInfo* tensor = layout_.find(name);
  MUSTER_CHECK(tensor != nullptr);
  return tensor->offset;
}

template <class S, class P>
auto GptModel<S, P>::make_norm(const std::string& name) const -> Norm {
  return {offset_of(name + ".weight"), offset_of(name + ".bias"), AlignedArray<A>(max_rows_),
          AlignedArray<A>(max_rows_), AlignedArray<S>(max_rows_ * width_)};
}

template <class S, class P>
auto GptModel<S, P>::make_linear(const std::string& name, std::size_t in, std::size_t out) const
    -> Linear {
  return {offset_of(name + ".weight"), offset_of(name + ".bias"), in, out};
}

template <class S, class P>
auto GptModel<S, P>::make_layer(std::int64_t index) const -> Layer {
  const std::string h = "h." + std::to_string(index) + ".";
  const std::size_t narrow = max_rows_ * width_;
  return {.x = AlignedArray<S>(narrow),
          .qkv = AlignedArray<S>(3 * narrow),
          .attended = AlignedArray<S>(narrow),
          .middle = AlignedArray<S>(narrow),
          .pre = AlignedArray<S>(4 * narrow),
          .act = AlignedArray<S>(4 * narrow),
          .stats = AlignedArray<A>(2 * max_rows_ * heads_),
          .norm1 = make_norm(h + "ln_1"),
          .norm2 = make_norm(h + "ln_2"),
          .attn = make_linear(h + "attn.c_attn", width_, 3 * width_),
          .attn_out = make_linear(h + "attn.c_proj", width_, width_),
          .fc = make_linear(h + "mlp.c_fc", width_, 4 * width_),
          .fc_out = make_linear(h + "mlp.c_proj", 4 * width_, width_)};
}

template <class S, class P>
void GptModel<S, P>::load_weights(std::span<const A> master) {
  MUSTER_CHECK(master.size() == layout_.size);
  // In pieces, so that the 16-bit copy never exists as a whole.
  constexpr std::size_t kPiece = 1024;
  S piece[kPiece];
  for (std::size_t i = 0; i < master.size(); i += kPiece) {
    const std::size_t count = std::min(kPiece, master.size() - i);
    k_.narrow(master.data() + i, static_cast<S*>(piece), count);
    k_.widen(static_cast<const S*>(piece), weights_.data() + i, count);
  }
}

template <class S, class P>
auto GptModel<S, P>::wide(const S* values, std::size_t count, AlignedArray<A>& room) const
    -> const A* {
  if constexpr (std::is_same_v<S, A>) {
    return values;
  } else {
    k_.widen(values, room.data(), count);
    return room.data();
  }
}

template <class S, class P>
void GptModel<S, P>::publish(std::size_t offset, const A* leaf, std::size_t count) {
  k_.add(leaf, gradients_ + offset, count);
}

template <class S, class P>
void GptModel<S, P>::norm_forward(Norm& norm, const S* x) {
  k_.layernorm(x, weight(norm.weight), weight(norm.bias), norm.out.data(), norm.mean.data(),
               norm.rstd.data(), rows_, width_);
}

// The gradient that arrives in product_, passed on into dx_.
template <class S, class P>
void GptModel<S, P>::norm_backward(const Norm& norm, const S* x, bool replace) {
  A* dweight = leaf_.data();
  A* dbias = leaf_.data() + width_;
  std::fill_n(leaf_.data(), 2 * width_, A{0});
  k_.layernorm_backward(x, weight(norm.weight), norm.mean.data(), norm.rstd.data(), product_.data(),
                        replace, dx_.data(), dweight, dbias, scratch_.data(), rows_, width_);
  publish(norm.weight, dweight, width_);
  publish(norm.bias, dbias, width_);
}

template <class S, class P>
void GptModel<S, P>::linear_forward(const Linear& l, const S* x) {
  products_.run({.m = rows_, .n = l.out, .k = l.in}, wide(x, rows_ * l.in, wide_x_),
                weight(l.weight), product_.data());
}

// Leaves the gradient of x in product_.
template <class S, class P>
void GptModel<S, P>::linear_backward(const Linear& l, const S* x, const S* dy) {
  const A* wide_dy = wide(dy, rows_ * l.out, wide_y_);
  const A* wide_x = wide(x, rows_ * l.in, wide_x_);
  products_.run({.transpose_b = true, .m = rows_, .n = l.in, .k = l.out}, wide_dy, weight(l.weight),
                product_.data());
  products_.run({.transpose_a = true, .m = l.in, .n = l.out, .k = rows_}, wide_x, wide_dy,
                leaf_.data());
  publish(l.weight, leaf_.data(), l.in * l.out);
  std::fill_n(leaf_.data(), l.out, A{0});
  k_.column_sums(dy, leaf_.data(), rows_, l.out);
  publish(l.bias, leaf_.data(), l.out);
}

template <class S, class P>
void GptModel<S, P>::layer_forward(Layer& layer, S* next) {
  norm_forward(layer.norm1, layer.x.data());
  linear_forward(layer.attn, layer.norm1.out.data());
  k_.bias(product_.data(), weight(layer.attn.bias), layer.qkv.data(), rows_, 3 * width_);
  for (std::size_t b = 0; b < batch_; ++b) {
    const std::size_t row = b * time_;
    k_.attention(attention_shape(), layer.qkv.data() + row * 3 * width_,
                 layer.attended.data() + row * width_, layer.stats.data() + 2 * row * heads_,
                 scratch_.data());
  }
  linear_forward(layer.attn_out, layer.attended.data());
  k_.bias_residual(product_.data(), weight(layer.attn_out.bias), layer.x.data(),
                   layer.middle.data(), rows_, width_);
  norm_forward(layer.norm2, layer.middle.data());
  linear_forward(layer.fc, layer.norm2.out.data());
  k_.bias_gelu(product_.data(), weight(layer.fc.bias), layer.pre.data(), layer.act.data(), rows_,
               4 * width_);
  linear_forward(layer.fc_out, layer.act.data());
  k_.bias_residual(product_.data(), weight(layer.fc_out.bias), layer.middle.data(), next, rows_,
                   width_);
}

template <class S, class P>
void GptModel<S, P>::layer_backward(const Layer& layer) {
  linear_backward(layer.fc_out, layer.act.data(), dx_.data());
  k_.gelu_backward(product_.data(), layer.pre.data(), dwide_.data(), rows_ * 4 * width_);
  linear_backward(layer.fc, layer.norm2.out.data(), dwide_.data());
  norm_backward(layer.norm2, layer.middle.data(), false);
  linear_backward(layer.attn_out, layer.attended.data(), dx_.data());
  for (std::size_t b = 0; b < batch_; ++b) {
    const std::size_t row = b * time_;
    k_.attention_backward(attention_shape(), layer.qkv.data() + row * 3 * width_,
                          layer.stats.data() + 2 * row * heads_, product_.data() + row * width_,
                          dwide_.data() + row * 3 * width_, scratch_.data());
  }
  linear_backward(layer.attn, layer.norm1.out.data(), dwide_.data());
  norm_backward(layer.norm1, layer.x.data(), false);
}

// Logits and loss; with gradients also d(last_norm_.out) in product_ and wte's share.
template <class S, class P>
double GptModel<S, P>::head(A scale) {
  double loss = 0;
  for (std::size_t first = 0; first < rows_; first += head_rows_) {
    const std::size_t rows = std::min(head_rows_, rows_ - first);
    const A* x = wide(last_norm_.out.data() + first * width_, rows * width_, wide_x_);
    products_.run({.transpose_b = true, .m = rows, .n = vocabulary_, .k = width_}, x, weight(wte_),
                  logits_.data());
    loss += k_.cross_entropy(logits_.data(), tokens_ + 1, time_ + 1, time_, first, rows,
                             vocabulary_, scale, gradients_ == nullptr ? nullptr : dlogits_.data());
    if (gradients_ == nullptr) continue;
    const A* dlogits = wide(dlogits_.data(), rows * vocabulary_, wide_y_);
    products_.run({.m = rows, .n = width_, .k = vocabulary_}, dlogits, weight(wte_),
                  product_.data() + first * width_);
    products_.run(
        {.transpose_a = true, .add = first != 0, .m = vocabulary_, .n = width_, .k = rows}, dlogits,
        x, wte_leaf_.data());
  }
  return loss;
}

template <class S, class P>
double GptModel<S, P>::run(std::span<const std::int32_t> tokens, std::int64_t batch,
                           std::int64_t time, A scale, A* gradients) {
  MUSTER_CHECK(batch >= 1 && static_cast<std::size_t>(batch) <= max_batch_);
  MUSTER_CHECK(time >= 1 && time <= config_.n_ctx);
  MUSTER_CHECK(tokens.size() == static_cast<std::size_t>(batch * (time + 1)));
  for (const std::int32_t token : tokens)
    MUSTER_CHECK(token >= 0 && token < config_.vocab_size);
  tokens_ = tokens.data();
  batch_ = static_cast<std::size_t>(batch);
  time_ = static_cast<std::size_t>(time);
  rows_ = batch_ * time_;
  gradients_ = gradients;

  k_.embed(tokens_, time_ + 1, weight(wte_), weight(wpe_), layers_[0].x.data(), batch_, time_,
           width_);
  for (std::size_t l = 0; l < layers_.size(); ++l)
    layer_forward(layers_[l], l + 1 < layers_.size() ? layers_[l + 1].x.data() : last_.data());
  norm_forward(last_norm_, last_.data());
  const double loss = head(scale);
  if (gradients == nullptr) return loss;

  norm_backward(last_norm_, last_.data(), true);
  for (std::size_t l = layers_.size(); l-- > 0;)
    layer_backward(layers_[l]);
  std::fill_n(leaf_.data(), time_ * width_, A{0});
  k_.embed_backward(tokens_, time_ + 1, dx_.data(), wte_leaf_.data(), leaf_.data(), batch_, time_,
                    width_);
  publish(wpe_, leaf_.data(), time_ * width_);
  publish(wte_, wte_leaf_.data(), vocabulary_ * width_);
  return loss;
}

}  // namespace muster::runtime
