// SPDX-License-Identifier: Apache-2.0
//
// proto/base's job structs <-> muster/v1/job.proto. `write` cannot fail; `read` complains to the
// Border and returns something harmless. These are the parts of which messages are made; the
// launcher uses them for Control too.
#pragma once

#include "muster/v1/job.pb.h"
#include "proto/base/events.h"
#include "proto/base/faults.h"
#include "proto/base/job.h"
#include "proto/wire/border.h"

namespace muster::wire {

void write(const Fault& from, v1::Fault& to);
Fault read(const v1::Fault& from, Border& border);
void write(const ArmedFault& from, v1::ArmedFault& to);
ArmedFault read(const v1::ArmedFault& from, Border& border);
void write(const FaultPlan& from, v1::FaultPlan& to);
FaultPlan read(const v1::FaultPlan& from, Border& border);

void write(const JobPolicy& from, v1::JobPolicy& to);
JobPolicy read(const v1::JobPolicy& from, Border& border);
void write(const JobSpec& from, v1::JobSpec& to);
JobSpec read(const v1::JobSpec& from, Border& border);
void write(const NodeFacts& from, v1::NodeFacts& to);
NodeFacts read(const v1::NodeFacts& from, Border& border);

void write(const ExitStatus& from, v1::ExitStatus& to);
ExitStatus read(const v1::ExitStatus& from, Border& border);
void write(const Hang& from, v1::Hang& to);
Hang read(const v1::Hang& from);
void write(const Failure& from, v1::Failure& to);
Failure read(const v1::Failure& from, Border& border);
void write(const Outcome& from, v1::Outcome& to);
Outcome read(const v1::Outcome& from, Border& border);

void write(const MemberRanks& from, v1::MemberRanks& to);
MemberRanks read(const v1::MemberRanks& from, Border& border);
void write(const Assignment& from, v1::Assignment& to);
Assignment read(const v1::Assignment& from, Border& border);

void write(const JobEvent& from, v1::JobEvent& to);
JobEvent read(const v1::JobEvent& from, Border& border);

}  // namespace muster::wire
