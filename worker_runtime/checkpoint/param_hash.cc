// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/checkpoint/param_hash.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "proto/base/check.h"
#include "worker_runtime/data/digest.h"

namespace muster::runtime {

static_assert(std::endian::native == std::endian::little, "hashed data is little-endian");

std::string param_hash(const FlatLayout& layout, std::span<const float> master) {
  MUSTER_CHECK(master.size() == layout.size);
  std::vector<const TensorInfo*> tensors;
  for (const TensorInfo& tensor : layout.tensors)
    tensors.push_back(&tensor);
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorInfo* a, const TensorInfo* b) { return a->name < b->name; });
  Digest128 digest;
  for (const TensorInfo* tensor : tensors) {
    const std::span name(tensor->name.c_str(), tensor->name.size() + 1);  // with its NUL
    digest.add(std::as_bytes(name));
    const std::array rank = {static_cast<std::uint32_t>(tensor->dims.size())};
    digest.add(std::as_bytes(std::span(rank)));
    digest.add(std::as_bytes(std::span(tensor->dims)));
    digest.add(std::as_bytes(master.subspan(tensor->offset, tensor->count)));
  }
  return digest.hex();
}

}  // namespace muster::runtime
