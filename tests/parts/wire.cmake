# SPDX-License-Identifier: Apache-2.0
muster_test(wire_test LABEL unit
  SOURCES unit/wire/messages_test.cc unit/wire/random_messages.cc
  LINK muster::wire)
