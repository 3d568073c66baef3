// SPDX-License-Identifier: Apache-2.0
//
// A certificate authority and one certificate of it for 127.0.0.1, as files of a folder.
#pragma once

#include <filesystem>

#include "proto/transport/tls.h"

namespace muster::test {

// Writes ca.pem, cert.pem and key.pem.
transport::TlsFiles make_certificates(const std::filesystem::path& folder);

}  // namespace muster::test
