// SPDX-License-Identifier: Apache-2.0
//
// Causal self-attention in FP64, forward and backward, with what a correct kernel may be off.
//
// The bounds follow the kernels' roundings one by one, each at its worst: `unit` is half a unit in
// the last place of 1 in the storage format (bfloat16 2^-8, half 2^-11, FP32 2^-24), f = 2^-24
// FP32's, and a sum of n FP32 terms is off by at most n f times the sum of their magnitudes,
// whatever the order. So they hold for any order of additions, on a device as on the host, and a
// wrong term or mask, which is off by much more, stands out.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace muster::runtime::cuda {

struct AttentionProblem {
  std::size_t batch, time, heads, head_size;
  std::vector<double> qkv;    // [batch][time][3 * heads * head_size]
  std::vector<double> d_out;  // [batch][time][heads * head_size]

  std::size_t width() const { return heads * head_size; }
  // Of part 0 (queries), 1 (keys) or 2 (values).
  std::size_t at(std::size_t b, std::size_t t, std::size_t h, std::size_t part) const {
    return ((b * time + t) * 3 + part) * width() + h * head_size;
  }
  std::size_t out_at(std::size_t b, std::size_t t, std::size_t h) const {
    return (b * time + t) * width() + h * head_size;
  }
};

struct Bounded {
  std::vector<double> value, bound;
  explicit Bounded(std::size_t count) : value(count), bound(count) {}
};

struct AttentionReference {
  Bounded out, lse, d_qkv;
};

namespace reference {

inline constexpr double kFloat = 0x1p-24;

struct Format {
  double unit;
  double tiny;  // half of the smallest subnormal number: what rounding can lose at least
};

struct Dot {
  double sum = 0, magnitude = 0;
};
inline Dot dot(const double* x, const double* y, std::size_t count) {
  Dot d;
  for (std::size_t i = 0; i < count; ++i) {
    d.sum += x[i] * y[i];
    d.magnitude += std::abs(x[i] * y[i]);
  }
  return d;
}

// One query's softmax.
struct Row {
  std::vector<double> p;
  double lse = 0;
  double lse_bound = 0;
  double p_bound = 0;  // relative
};

inline Row softmax(const AttentionProblem& a, std::size_t b, std::size_t h, std::size_t i) {
  const double scale = 1 / std::sqrt(static_cast<double>(a.head_size));
  Row row;
  double most = -HUGE_VAL;
  double logit_bound = 0;
  for (std::size_t j = 0; j <= i; ++j) {
    const Dot d = dot(&a.qkv[a.at(b, i, h, 0)], &a.qkv[a.at(b, j, h, 1)], a.head_size);
    row.p.push_back(d.sum * scale);
    most = std::max(most, row.p.back());
    // The product's sum, and three roundings of a logit when it is scaled.
    logit_bound =
        std::max(logit_bound, static_cast<double>(a.head_size + 3) * kFloat * d.magnitude * scale);
  }
  double sum = 0;
  for (double& p : row.p)
    sum += p = std::exp(p - most);
  for (double& p : row.p)
    p /= sum;
  row.lse = most + std::log(sum);
  const double terms = static_cast<double>(i + 8);
  row.lse_bound = logit_bound + (4 * (std::abs(most) + std::abs(row.lse)) + terms) * kFloat;
  row.p_bound = logit_bound + row.lse_bound;
  return row;
}

// out[d] = sum over j of factor[j] x_j[d], where factor[j] is off by factor_bound[j] and the sum
// and the result are rounded.
class WeightedSum {
 public:
  explicit WeightedSum(std::size_t size) : sum_(size), bound_(size) {}
  // One of `terms`.
  void add(double factor, double factor_bound, const double* x, std::size_t terms) {
    const double off = factor_bound + static_cast<double>(terms) * kFloat * std::abs(factor);
    for (std::size_t d = 0; d < sum_.size(); ++d) {
      sum_[d] += factor * x[d];
      bound_[d] += off * std::abs(x[d]);
    }
  }
  void store(const Format& format, std::size_t at, Bounded& out) const {
    for (std::size_t d = 0; d < sum_.size(); ++d) {
      out.value[at + d] = sum_[d];
      out.bound[at + d] = 1.1 * (bound_[d] + format.unit * std::abs(sum_[d]) + format.tiny);
    }
  }

 private:
  std::vector<double> sum_, bound_;
};

inline void forward(const AttentionProblem& a, const Format& format, std::size_t b, std::size_t h,
                    const std::vector<Row>& rows, AttentionReference& r) {
  for (std::size_t i = 0; i < a.time; ++i) {
    WeightedSum out(a.head_size);
    for (std::size_t j = 0; j <= i; ++j) {
      const double p = rows[i].p[j];
      out.add(p, p * (format.unit + rows[i].p_bound) + format.tiny, &a.qkv[a.at(b, j, h, 2)],
              i + 8);
    }
    out.store(format, a.out_at(b, i, h), r.out);
    const std::size_t row = (b * a.heads + h) * a.time + i;
    r.lse.value[row] = rows[i].lse;
    r.lse.bound[row] = 1.1 * rows[i].lse_bound;
  }
}

inline void backward(const AttentionProblem& a, const Format& format, std::size_t b, std::size_t h,
                     const std::vector<Row>& rows, AttentionReference& r) {
  const double scale = 1 / std::sqrt(static_cast<double>(a.head_size));
  const std::size_t size = a.head_size;
  std::vector<WeightedSum> d_k(a.time, WeightedSum(size));
  std::vector<WeightedSum> d_v(a.time, WeightedSum(size));
  for (std::size_t i = 0; i < a.time; ++i) {
    const double* d_out = &a.d_out[a.out_at(b, i, h)];
    const double* q = &a.qkv[a.at(b, i, h, 0)];
    // D, from the output as it was stored.
    const std::size_t out_at = a.out_at(b, i, h);
    const Dot whole = dot(&r.out.value[out_at], d_out, size);
    const double whole_bound = dot(&r.out.bound[out_at], d_out, size).magnitude +
                               static_cast<double>(size) * kFloat * whole.magnitude;
    WeightedSum d_q(size);
    for (std::size_t j = 0; j <= i; ++j) {
      const double p = rows[i].p[j];
      const Dot g = dot(d_out, &a.qkv[a.at(b, j, h, 2)], size);
      const double d_s = p * (g.sum - whole.sum) * scale;
      const double inner = whole_bound + static_cast<double>(size + 4) * kFloat * g.magnitude;
      const double d_s_bound = std::abs(d_s) * (format.unit + rows[i].p_bound + 4 * kFloat) +
                               p * scale * inner + format.tiny;
      d_q.add(d_s, d_s_bound, &a.qkv[a.at(b, j, h, 1)], i + 1);
      d_k[j].add(d_s, d_s_bound, q, a.time);
      d_v[j].add(p, p * (format.unit + rows[i].p_bound) + format.tiny, d_out, a.time);
    }
    d_q.store(format, a.at(b, i, h, 0), r.d_qkv);
  }
  for (std::size_t j = 0; j < a.time; ++j) {
    d_k[j].store(format, a.at(b, j, h, 1), r.d_qkv);
    d_v[j].store(format, a.at(b, j, h, 2), r.d_qkv);
  }
}

}  // namespace reference

inline AttentionReference attention_reference(const AttentionProblem& a,
                                              const reference::Format& format) {
  AttentionReference r{Bounded(a.d_out.size()), Bounded(a.batch * a.heads * a.time),
                       Bounded(a.qkv.size())};
  for (std::size_t b = 0; b < a.batch; ++b) {
    for (std::size_t h = 0; h < a.heads; ++h) {
      std::vector<reference::Row> rows;
      for (std::size_t i = 0; i < a.time; ++i)
        rows.push_back(reference::softmax(a, b, h, i));
      reference::forward(a, format, b, h, rows, r);
      reference::backward(a, format, b, h, rows, r);
    }
  }
  return r;
}

}  // namespace muster::runtime::cuda
