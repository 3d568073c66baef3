# SPDX-License-Identifier: Apache-2.0
muster_test(tls_test LABEL unit
  SOURCES unit/transport/certificates.cc unit/transport/tls_test.cc
  LINK muster::transport)
