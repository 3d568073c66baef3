// SPDX-License-Identifier: Apache-2.0
//
// What begins a worker's line on the console (--log-prefix): a text with {names} in it.
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "proto/base/ids.h"

namespace muster::agent {

inline constexpr std::string_view kDefaultLinePrefix = "[{rank}] ";

// Whose line it is.
struct LineOwner {
  JobId job;
  NodeName node;
  Generation generation = kNoGeneration;
  std::uint32_t rank = 0;
  std::uint32_t local_rank = 0;
};

// What is wrong with a template, in words; empty: nothing. Known are {node}, {rank}, {local_rank},
// {job} and {generation}; {{ and }} stand for the braces themselves.
std::string line_prefix_mistake(std::string_view text);

// REQUIRES: no mistake in `text`.
std::string make_line_prefix(std::string_view text, const LineOwner& owner);

// The same template as torchrun writes it: ${role_name}, ${rank}, ${local_rank}, also without
// braces; $$ is a $, and what it does not know stays as it is. Role names are "default" here.
std::string line_prefix_of_torchrun(std::string_view text);

}  // namespace muster::agent
