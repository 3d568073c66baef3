// SPDX-License-Identifier: Apache-2.0
//
// JobView and Order <-> muster/v1/control.proto. Here and not in proto/wire, which does not know
// the launcher's structs.
#pragma once

#include "launcher/rendezvous/core/rendezvous.h"
#include "muster/v1/control.pb.h"
#include "proto/wire/border.h"

namespace muster::rendezvous {

void write(const JobView& from, v1::JobDescription& to);
JobView read(const v1::JobDescription& from, wire::Border& border);

void write(const Order& from, v1::OperateRequest& to);
Order read(const v1::OperateRequest& from, wire::Border& border);

}  // namespace muster::rendezvous
