// SPDX-License-Identifier: Apache-2.0
//
// "Did you mean": the known word that a typing error would have turned into the one given.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace muster {

// The candidate nearest to `word` by edit distance, the first of equals; empty where none is near
// for the length of the word: a wrong guess is worse than none.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace muster
