// SPDX-License-Identifier: Apache-2.0
//
// All jobs as one answer that a client takes, however many nodes and failures they have. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "launcher/rendezvous/core/rendezvous.h"
#include "muster/v1/control.pb.h"

namespace muster::rendezvous {

// Adds the jobs to the reply. Where they would take more than `most` bytes, the largest jobs
// lose, in this order, what their failures left behind and their fault plans, the progress of
// their ranks, their nodes, and last of all themselves; the reply then says what is left out.
void describe_within(std::size_t most, const std::vector<JobView>& jobs, v1::DescribeReply& reply);

}  // namespace muster::rendezvous
