// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/border_rules.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <google/protobuf/descriptor.h>

#include "muster/v1/job.pb.h"
#include "proto/wire/limits.h"
#include "tests/fuzz/input.h"

namespace muster::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Type = FieldDescriptor::CppType;

constexpr std::int64_t kEndOfTime = 253402300800000000;

struct Range {
  std::int64_t low;
  std::int64_t high;
};

const std::map<std::string, Range>& ranges() {
  static const std::map<std::string, Range> kRanges{
      {"generation", {kNoGeneration, std::numeric_limits<Generation>::max() / 2}},
      {"work", {kNoGeneration, std::numeric_limits<Generation>::max() / 2}},
      {"pid", {0, std::numeric_limits<std::int32_t>::max()}},
      {"agent_pid", {0, std::numeric_limits<std::int32_t>::max()}},
      {"signal", {0, 64}},
      {"exit_code", {0, 255}},
      {"master_port", {0, 65535}},
      {"rank", {0, wire::kMaxWorldSize - 1}},
      {"first_rank", {0, wire::kMaxWorldSize - 1}},
      {"ranks_done", {0, wire::kMaxWorldSize - 1}},
      {"world_size", {0, wire::kMaxWorldSize}},
      {"local_rank", {0, wire::kMaxSlots - 1}},
      {"node_rank", {0, wire::kMaxMembers - 1}},
      {"group_rank", {0, wire::kMaxMembers - 1}},
      {"count", {1, wire::kMaxSlots}},
      {"heartbeat_ns", {1, wire::kMaxDuration.count()}},
      {"node_timeout_ns", {1, wire::kMaxDuration.count()}},
  };
  return kRanges;
}

std::size_t most_bytes(const std::string& field) {
  static const std::map<std::string, std::size_t> kMost{{"stderr_tail", wire::kMaxStderrTailBytes},
                                                        {"error_file", wire::kMaxErrorFileBytes},
                                                        {"key", kMaxStoreKeyBytes},
                                                        {"value", kMaxStoreValueBytes}};
  const auto found = kMost.find(field);
  return found == kMost.end() ? wire::kMaxTextBytes : found->second;
}

bool is_name(const std::string& field) {
  static const std::vector<std::string> kNames{"job",
                                               "run",
                                               "node",
                                               "name",
                                               "host",
                                               "addr",
                                               "advertise_addr",
                                               "user",
                                               "nodes",
                                               "joined",
                                               "dialed_addr",
                                               "master_addr",
                                               "server_instance",
                                               "boot_id",
                                               "gpu",
                                               "observed_addr",
                                               "aliases"};
  return std::find(kNames.begin(), kNames.end(), field) != kNames.end();
}

void check(const std::string& where, std::int64_t value, Range range) {
  const bool inside = value >= range.low && value <= range.high;
  expect(inside, "the border lets in only what is in range", where + " " + std::to_string(value));
}

void check_number(const FieldDescriptor& field, std::int64_t value) {
  const std::string& name = field.name();
  const auto range = ranges().find(name);
  if (range != ranges().end()) {
    check(field.full_name(), value, range->second);
  } else if (name.ends_with("_ns")) {
    check(field.full_name(), value, {0, wire::kMaxDuration.count()});
  } else if (name.ends_with("_us")) {
    check(field.full_name(), value, {0, kEndOfTime});
  } else if (field.full_name() == "muster.v1.NodeFacts.slots") {
    check(field.full_name(), value, {1, wire::kMaxSlots});
  }
}

void check_text(const FieldDescriptor& field, const std::string& value) {
  const std::size_t most = is_name(field.name()) ? wire::kMaxNameBytes : most_bytes(field.name());
  expect(value.size() <= most, "the border lets in no long text", field.full_name());
  if (!is_name(field.name())) return;
  const bool plain = std::none_of(value.begin(), value.end(), [](char c) {
    return static_cast<unsigned char>(c) < 32 || c == 127;
  });
  expect(plain, "a name has no control characters", field.full_name());
}

// Ranks that overlap or leave a gap start workers that wait for each other for ever.
void check_assignment(const v1::Assignment& assignment) {
  std::uint64_t next = 0;
  for (int i = 0; i < assignment.members_size(); ++i) {
    expect(assignment.members(i).group_rank() == static_cast<std::uint32_t>(i) &&
               assignment.members(i).first_rank() == next,
           "the ranks of an assignment are whole");
    next += assignment.members(i).count();
  }
  expect(next == assignment.world_size() && next > 0, "ranks add up to the world size");
  expect(assignment.group_rank() < static_cast<std::uint32_t>(assignment.members_size()),
         "an assignment has its receiver");
  expect(assignment.generation() >= 0, "an assignment has a generation");
}

void check_value(const Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case Type::CPPTYPE_INT32: return check_number(field, reflection.GetInt32(message, &field));
    case Type::CPPTYPE_INT64: return check_number(field, reflection.GetInt64(message, &field));
    case Type::CPPTYPE_UINT32: return check_number(field, reflection.GetUInt32(message, &field));
    case Type::CPPTYPE_STRING: return check_text(field, reflection.GetString(message, &field));
    case Type::CPPTYPE_MESSAGE: return expect_in_range(reflection.GetMessage(message, &field));
    case Type::CPPTYPE_ENUM:
      return expect(
          field.enum_type()->FindValueByNumber(reflection.GetEnumValue(message, &field)) != nullptr,
          "the border knows each word", field.full_name());
    case Type::CPPTYPE_DOUBLE: {
      const double number = reflection.GetDouble(message, &field);
      if (field.name() == "factor")
        return expect(number >= 1 && number <= 1000, "a factor's range");
      return expect(number >= 0 && number <= 1, "a share is in [0, 1]");
    }
    default: return;
  }
}

void check_entry(const Message& message, const FieldDescriptor& field, int at) {
  const Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case Type::CPPTYPE_MESSAGE:
      return expect_in_range(reflection.GetRepeatedMessage(message, &field, at));
    case Type::CPPTYPE_STRING:
      return check_text(field, reflection.GetRepeatedString(message, &field, at));
    case Type::CPPTYPE_UINT32:
      return check_number(field, reflection.GetRepeatedUInt32(message, &field, at));
    case Type::CPPTYPE_INT64:
      return check_number(field, reflection.GetRepeatedInt64(message, &field, at));
    default: return;
  }
}

}  // namespace

void expect_in_range(const Message& message) {
  const Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (!field->is_repeated()) {
      check_value(message, *field);
      continue;
    }
    const int size = reflection.FieldSize(message, field);
    if (field->name() == "victims") check(field->full_name(), size, {0, wire::kMaxVictims});
    if (field->name() == "faults") check(field->full_name(), size, {0, wire::kMaxFaults});
    for (int i = 0; i < size; ++i)
      check_entry(message, *field, i);
  }
  if (message.GetDescriptor() == v1::Assignment::descriptor()) {
    check_assignment(static_cast<const v1::Assignment&>(message));
  }
}

}  // namespace muster::fuzz
