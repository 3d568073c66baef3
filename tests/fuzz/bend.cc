// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/bend.h"

#include <limits>

#include <google/protobuf/descriptor.h>

namespace muster::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Type = FieldDescriptor::CppType;

constexpr int kMostEntries = 300;  // more than the smallest bound on a repeated field

std::string text(Input& input) {
  switch (input.below(8)) {
    case 0: return "";
    case 1: return std::string(1 + input.below(3), static_cast<char>(input.byte()));
    case 2: return std::string(511 + input.below(3), 'n');
    case 3: return std::string(4095 + input.below(3), 't');
    case 4: return std::string(8191 + input.below(3), 's');
    case 5: return std::string(65535 + input.below(3), 'f');
    default: return std::string(1, static_cast<char>('a' + input.below(4)));
  }
}

double real(Input& input) {
  switch (input.below(6)) {
    case 0: return std::numeric_limits<double>::quiet_NaN();
    case 1: return std::numeric_limits<double>::infinity();
    case 2: return -0.0;
    case 3: return 1.0000001;
    default: return static_cast<double>(input.byte()) / 255;
  }
}

void set_number(Message& message, const FieldDescriptor* field, std::uint64_t to) {
  const Reflection& reflection = *message.GetReflection();
  switch (field->cpp_type()) {
    case Type::CPPTYPE_INT32:
      return reflection.SetInt32(&message, field, static_cast<std::int32_t>(to));
    case Type::CPPTYPE_INT64:
      return reflection.SetInt64(&message, field, static_cast<std::int64_t>(to));
    case Type::CPPTYPE_UINT32:
      return reflection.SetUInt32(&message, field, static_cast<std::uint32_t>(to));
    case Type::CPPTYPE_UINT64: return reflection.SetUInt64(&message, field, to);
    case Type::CPPTYPE_ENUM: return reflection.SetEnumValue(&message, field, static_cast<int>(to));
    case Type::CPPTYPE_BOOL: return reflection.SetBool(&message, field, (to & 1U) != 0);
    default: return;
  }
}

std::uint64_t number(const FieldDescriptor* field, Input& input) {
  const bool is_small =
      field->cpp_type() == Type::CPPTYPE_ENUM || field->cpp_type() == Type::CPPTYPE_BOOL;
  return is_small || input.coin() ? input.below(20) : input.edge();
}

void bend_one(Message& message, const FieldDescriptor* field, Input& input) {
  const Reflection& reflection = *message.GetReflection();
  switch (field->cpp_type()) {
    case Type::CPPTYPE_MESSAGE: return bend(*reflection.MutableMessage(&message, field), input);
    case Type::CPPTYPE_STRING: return reflection.SetString(&message, field, text(input));
    case Type::CPPTYPE_DOUBLE: return reflection.SetDouble(&message, field, real(input));
    default: return set_number(message, field, number(field, input));
  }
}

void add(Message& message, const FieldDescriptor* field, Input& input) {
  const Reflection& reflection = *message.GetReflection();
  switch (field->cpp_type()) {
    case Type::CPPTYPE_MESSAGE: {
      // A copy of the first, so that it is mostly right.
      Message& added = *reflection.AddMessage(&message, field);
      added.CopyFrom(reflection.GetRepeatedMessage(message, field, 0));
      return;
    }
    case Type::CPPTYPE_STRING: return reflection.AddString(&message, field, text(input));
    case Type::CPPTYPE_UINT32:
      return reflection.AddUInt32(&message, field, static_cast<std::uint32_t>(input.edge()));
    case Type::CPPTYPE_INT64:
      return reflection.AddInt64(&message, field, static_cast<std::int64_t>(input.edge()));
    default: return;
  }
}

void bend_many(Message& message, const FieldDescriptor* field, Input& input) {
  const Reflection& reflection = *message.GetReflection();
  const int size = reflection.FieldSize(message, field);
  const bool holds_messages = field->cpp_type() == Type::CPPTYPE_MESSAGE;
  switch (input.below(5)) {
    case 0:
      if (size > 0) return reflection.RemoveLast(&message, field);
      break;
    case 1: {
      const int more = input.one_in(16) ? kMostEntries : 1;
      for (int i = 0; i < more && size + i < kMostEntries; ++i)
        add(message, field, input);
      return;
    }
    case 2:
      if (size > 1) {
        return reflection.SwapElements(&message, field, 0,
                                       static_cast<int>(input.below(256)) % size);
      }
      break;
    default: break;
  }
  if (size == 0) return add(message, field, input);
  const int at = static_cast<int>(input.below(256)) % size;
  if (holds_messages) return bend(*reflection.MutableRepeatedMessage(&message, field, at), input);
  reflection.RemoveLast(&message, field);
  add(message, field, input);
}

}  // namespace

void bend(Message& message, Input& input) {
  const auto& description = *message.GetDescriptor();
  if (description.field_count() == 0) return;
  const FieldDescriptor* field =
      description.field(static_cast<int>(input.below(256)) % description.field_count());
  if (field->is_repeated()) return bend_many(message, field, input);
  if (input.one_in(8)) return message.GetReflection()->ClearField(&message, field);
  bend_one(message, field, input);
}

}  // namespace muster::fuzz
