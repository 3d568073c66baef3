// SPDX-License-Identifier: Apache-2.0
//
// What is wrong with a text that should be JSON, in words for the person who wrote it: parsers
// say it in their own, and differently from version to version.
#pragma once

#include <string>
#include <string_view>

namespace muster {

// The first mistake as "LINE:COLUMN: what", both from 1, columns in characters; empty: there is
// none. Texts nested deeper than 100 are refused too: what walks a document may recurse.
std::string json_mistake(std::string_view text);

}  // namespace muster
