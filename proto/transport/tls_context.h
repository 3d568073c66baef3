// SPDX-License-Identifier: Apache-2.0
//
// Certificates from files, ready for handshakes of either side, and what went wrong in one.
//
// Thread rule: pure but for reading the files; any thread.
#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>
#include <boost/asio/ssl/context.hpp>
#include <boost/system/error_code.hpp>

#include "proto/transport/tls.h"

namespace muster::transport {

// Errors as of Tls::load().
absl::StatusOr<std::shared_ptr<boost::asio::ssl::context>> make_tls_context(const TlsFiles& files);

// Changes whenever one of the files does; empty if one is not there (as while it is replaced).
std::string stamp_of(const TlsFiles& files);

// From now on `ssl` takes only a certificate for `host`.
void expect_host(SSL* ssl, const std::string& host);

// `error`: of a handshake or of a read on `ssl`; `is_server`: which side we are.
TlsResult explain_tls_failure(SSL* ssl, const boost::system::error_code& error, bool is_server);

}  // namespace muster::transport
