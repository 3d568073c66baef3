// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "worker_runtime/model/gpt.h"

namespace muster::runtime {
namespace {

const GptConfig kOdd{.n_layer = 3, .n_head = 3, .n_embd = 21, .n_ctx = 10, .vocab_size = 131};

TEST_CASE("the flat layout: reverse order of use, padded to 64, tied embedding last") {
  const FlatLayout layout = flat_layout(kOdd);
  REQUIRE(layout.tensors.size() == 2 + 3 * 12 + 2);
  CHECK(layout.tensors[0].name == "ln_f.bias");
  CHECK(layout.tensors[1].name == "ln_f.weight");
  CHECK(layout.tensors[2].name == "h.2.mlp.c_proj.bias");
  CHECK(layout.tensors[13].name == "h.2.ln_1.weight");
  CHECK(layout.tensors[14].name == "h.1.mlp.c_proj.bias");
  CHECK(layout.tensors[38].name == "wpe.weight");
  CHECK(layout.tensors[39].name == "wte.weight");
  std::size_t at = 0;
  std::set<std::string> names;
  for (const TensorInfo& tensor : layout.tensors) {
    CAPTURE(tensor.name);
    CHECK(tensor.offset == at);
    CHECK(tensor.offset % 64 == 0);
    CHECK(tensor.decay == (tensor.dims.size() == 2));
    CHECK(names.insert(tensor.name).second);
    CHECK(layout.find(tensor.name) == &tensor);
    at += (tensor.count + 63) / 64 * 64;
  }
  CHECK(layout.size == at);
  CHECK(layout.find("h.0.attn.c_attn.weight")->dims == std::vector<std::int64_t>{21, 63});
  CHECK(layout.find("h.0.mlp.c_proj.weight")->dims == std::vector<std::int64_t>{84, 21});
  CHECK(layout.find("h.3.ln_1.bias") == nullptr);
}

TEST_CASE("the layout's hash sees every size") {
  const std::uint64_t hash = flat_layout(kOdd).hash;
  CHECK(flat_layout(kOdd).hash == hash);
  std::set<std::uint64_t> seen = {hash};
  for (std::int64_t GptConfig::*field :
       {&GptConfig::n_layer, &GptConfig::n_embd, &GptConfig::n_ctx, &GptConfig::vocab_size}) {
    GptConfig other = kOdd;
    other.*field += 3;
    CHECK(seen.insert(flat_layout(other).hash).second);
  }
}

TEST_CASE("initial values: distribution, residual scaling, zeroes and ones") {
  const GptConfig config{.n_layer = 4, .n_head = 2, .n_embd = 64, .n_ctx = 32, .vocab_size = 100};
  const FlatLayout layout = flat_layout(config);
  std::vector<float> master(layout.size, 7.0F);
  initialise(config, layout, 11, master);
  std::vector<char> covered(layout.size);
  for (const TensorInfo& tensor : layout.tensors) {
    CAPTURE(tensor.name);
    double sum = 0;
    double squares = 0;
    for (std::size_t i = tensor.offset; i < tensor.offset + tensor.count; ++i) {
      covered[i] = 1;
      sum += static_cast<double>(master[i]);
      squares += static_cast<double>(master[i]) * static_cast<double>(master[i]);
    }
    const double count = static_cast<double>(tensor.count);
    if (tensor.dims.size() == 1) {
      const bool weight = tensor.name.find(".weight") != std::string::npos;
      CHECK(sum == (weight ? count : 0.0));
      CHECK(squares == (weight ? count : 0.0));
      continue;
    }
    const bool projection = tensor.name.find("c_proj") != std::string::npos;
    const double deviation = projection ? 0.02 / std::sqrt(8.0) : 0.02;
    CHECK(std::fabs(sum / count) < 5 * deviation / std::sqrt(count));
    CHECK(std::sqrt(squares / count) == Approx(deviation).epsilon(0.06));
  }
  for (std::size_t i = 0; i < layout.size; ++i) {
    if (!covered[i]) REQUIRE(master[i] == 0.0F);
  }
}

TEST_CASE("initial values depend on seed and name only") {
  GptConfig deep = kOdd;
  deep.n_layer = 3;
  GptConfig wide = kOdd;
  wide.vocab_size += 64;
  const FlatLayout layout = flat_layout(deep);
  const FlatLayout other = flat_layout(wide);
  std::vector<float> a(layout.size), b(other.size), c(layout.size);
  initialise(deep, layout, 3, a);
  initialise(wide, other, 3, b);
  initialise(deep, layout, 4, c);
  const TensorInfo* fc_a = layout.find("h.1.mlp.c_fc.weight");
  const TensorInfo* fc_b = other.find("h.1.mlp.c_fc.weight");
  bool same = true;
  std::size_t different = 0;
  for (std::size_t i = 0; i < fc_a->count; ++i) {
    same = same && a[fc_a->offset + i] == b[fc_b->offset + i];
    different += a[fc_a->offset + i] != c[fc_a->offset + i];
  }
  CHECK(same);
  CHECK(different > fc_a->count * 9 / 10);
}

}  // namespace
}  // namespace muster::runtime
