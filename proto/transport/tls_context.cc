// SPDX-License-Identifier: Apache-2.0
#include "proto/transport/tls_context.h"

#include <array>
#include <cstddef>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <utility>

#include <absl/strings/str_cat.h>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/error.hpp>

#include "proto/transport/text_file.h"

namespace muster::transport {
namespace {

using boost::asio::ssl::context;
using boost::system::error_code;

constexpr std::size_t kMaxFileBytes = 4U << 20U;  // a CA bundle of a whole distribution has 220 KiB

// A server that asks for a passphrase would wait for a terminal.
int no_passphrase(char*, int, int, void*) {
  return 0;
}

std::string reason_of(const error_code& error) {
  const char* const text = ::ERR_reason_error_string(static_cast<unsigned long>(error.value()));
  return text != nullptr ? text : error.message();
}

absl::Status wrong(const TlsFile& file, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(file.origin, ": ", file.path, ": ", what));
}

absl::Status wrong(const TlsFile& file, const std::string& what, const error_code& error) {
  return wrong(file, absl::StrCat(what, " (", reason_of(error), ")"));
}

absl::StatusOr<std::string> text_of(const TlsFile& file) {
  absl::StatusOr<std::string> text = read_text_file(file.path, kMaxFileBytes);
  if (text.ok()) return text;
  return absl::Status(text.status().code(),
                      absl::StrCat(file.origin, ": ", file.path, ": ", text.status().message()));
}

std::string day_of(const ASN1_TIME* time) {
  tm parts{};
  std::array<char, 32> text{};
  if (::ASN1_TIME_to_tm(time, &parts) != 1) return "a day that cannot be read";
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text.data();
}

absl::Status check_dates(const TlsFile& file, SSL_CTX* ssl) {
  const X509* const own = ::SSL_CTX_get0_certificate(ssl);
  if (own == nullptr) return absl::OkStatus();
  const ASN1_TIME* const end = ::X509_get0_notAfter(own);
  if (::X509_cmp_current_time(end) < 0) {
    return wrong(file, "the certificate has expired, on " + day_of(end));
  }
  return absl::OkStatus();
}

// Names that a certificate is for: "DNS:a, IP Address:10.0.0.1".
std::string names_of(X509* certificate) {
  const int at = ::X509_get_ext_by_NID(certificate, NID_subject_alt_name, -1);
  X509_EXTENSION* const names = at < 0 ? nullptr : ::X509_get_ext(certificate, at);
  BIO* const out = ::BIO_new(::BIO_s_mem());
  if (out == nullptr) return "";
  std::string text;
  if (names != nullptr && ::X509V3_EXT_print(out, names, 0, 0) == 1) {
    char* bytes = nullptr;
    const long size = ::BIO_get_mem_data(out, &bytes);
    text.assign(bytes, static_cast<std::size_t>(size));
  }
  ::BIO_free(out);
  constexpr std::size_t kShown = 200;
  if (text.size() > kShown) text = text.substr(0, kShown) + "…";
  return text;
}

int names_index() {
  static const int index = ::SSL_get_ex_new_index(
      0, nullptr, nullptr, nullptr, [](void*, void* kept, CRYPTO_EX_DATA*, int, long, void*) {
        delete static_cast<std::string*>(kept);
      });
  return index;
}

// Keeps the names of a certificate that is refused: they are not to be had afterwards.
int on_verified(int is_good, X509_STORE_CTX* store) {
  if (is_good == 1 || ::X509_STORE_CTX_get_error_depth(store) != 0) return is_good;
  auto* const ssl = static_cast<SSL*>(
      ::X509_STORE_CTX_get_ex_data(store, ::SSL_get_ex_data_X509_STORE_CTX_idx()));
  X509* const certificate = ::X509_STORE_CTX_get_current_cert(store);
  if (ssl != nullptr && certificate != nullptr &&
      ::SSL_get_ex_data(ssl, names_index()) == nullptr) {
    ::SSL_set_ex_data(ssl, names_index(), new std::string(names_of(certificate)));
  }
  return is_good;
}

void set_rules(SSL_CTX* ssl) {
  ::SSL_CTX_set_min_proto_version(ssl, TLS1_2_VERSION);
  ::SSL_CTX_set_options(ssl, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  ::SSL_CTX_set_num_tickets(ssl, 0);
  ::SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
  ::SSL_CTX_set_mode(ssl, SSL_MODE_RELEASE_BUFFERS);
  ::SSL_CTX_set_default_passwd_cb(ssl, no_passphrase);
  ::SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, on_verified);
}

bool is_about_certificates(int alert) {
  constexpr int kBad = 42;  // to 46: unsupported, revoked, expired, unknown
  constexpr int kUnknown = 46;
  return (alert >= kBad && alert <= kUnknown) || alert == TLS1_AD_UNKNOWN_CA ||
         alert == TLS13_AD_CERTIFICATE_REQUIRED || alert == TLS1_AD_ACCESS_DENIED;
}

std::string refused_names(SSL* ssl) {
  const auto* const names = static_cast<const std::string*>(::SSL_get_ex_data(ssl, names_index()));
  if (names == nullptr) return "";
  return names->empty() ? ": it has no subjectAltName" : ": it is for " + *names;
}

}  // namespace

absl::StatusOr<std::shared_ptr<context>> make_tls_context(const TlsFiles& files) {
  const absl::StatusOr<std::string> cert = text_of(files.cert);
  if (!cert.ok()) return cert.status();
  const absl::StatusOr<std::string> key = text_of(files.key);
  if (!key.ok()) return key.status();
  const absl::StatusOr<std::string> ca = text_of(files.ca);
  if (!ca.ok()) return ca.status();

  error_code error;
  auto made = std::make_shared<context>(context::tls);
  SSL_CTX* const ssl = made->native_handle();
  set_rules(ssl);
  made->use_certificate_chain(boost::asio::buffer(*cert), error);
  if (error) return wrong(files.cert, "no certificate in PEM", error);
  made->use_private_key(boost::asio::buffer(*key), context::pem, error);
  if (error && key->find("ENCRYPTED") != std::string::npos) {
    return wrong(files.key, "wants a passphrase; give a key without one", error);
  }
  // A key of another kind than the certificate's, or of another one.
  if (error && ERR_GET_LIB(static_cast<unsigned long>(error.value())) == ERR_LIB_X509) {
    return wrong(files.key, "is not the key of the certificate in " + files.cert.path, error);
  }
  if (error) return wrong(files.key, "no private key in PEM", error);
  made->add_certificate_authority(boost::asio::buffer(*ca), error);
  if (error) return wrong(files.ca, "no certificates in PEM", error);
  if (const absl::Status dates = check_dates(files.cert, ssl); !dates.ok()) return dates;
  ::ERR_clear_error();
  return made;
}

std::string stamp_of(const TlsFiles& files) {
  std::string stamp;
  for (const TlsFile* file : {&files.cert, &files.key, &files.ca}) {
    struct stat facts {};
    if (::stat(file->path.c_str(), &facts) != 0) return "";
    absl::StrAppend(&stamp, facts.st_dev, ":", facts.st_ino, ":", facts.st_size, ":",
                    facts.st_mtim.tv_sec, ".", facts.st_mtim.tv_nsec, " ");
  }
  return stamp;
}

void expect_host(SSL* ssl, const std::string& host) {
  X509_VERIFY_PARAM* const wanted = ::SSL_get0_param(ssl);
  if (::X509_VERIFY_PARAM_set1_ip_asc(wanted, host.c_str()) == 1) return;
  ::ERR_clear_error();
  ::X509_VERIFY_PARAM_set_hostflags(wanted, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  ::X509_VERIFY_PARAM_set1_host(wanted, host.c_str(), host.size());
  // What the macro SSL_set_tlsext_host_name does, without its cast.
  std::string name = host;
  ::SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, name.data());
}

TlsResult explain_tls_failure(SSL* ssl, const error_code& error, bool is_server) {
  using Kind = TlsResult::Kind;
  const long verified = ::SSL_get_verify_result(ssl);
  if (verified != X509_V_OK) {
    const bool is_name =
        verified == X509_V_ERR_HOSTNAME_MISMATCH || verified == X509_V_ERR_IP_ADDRESS_MISMATCH;
    return {Kind::kUntrusted,
            {},
            absl::StrCat(
                "its certificate is not taken here: ", ::X509_verify_cert_error_string(verified),
                is_name ? refused_names(ssl) : "")};
  }
  if (error.category() != boost::asio::error::get_ssl_category()) {
    const bool is_end = error.category() == boost::asio::ssl::error::get_stream_category() ||
                        error == boost::asio::error::eof;
    return {Kind::kBroken, {}, is_end ? "closed the connection" : error.message()};
  }
  constexpr int kAlerts = SSL_AD_REASON_OFFSET;
  const auto code = static_cast<unsigned long>(error.value());
  const int reason = ERR_GET_REASON(code);
  if (reason >= kAlerts && is_about_certificates(reason - kAlerts)) {
    return {Kind::kUntrusted,
            {},
            absl::StrCat("does not take the certificate of this node (--tls-cert): ",
                         reason_of(error))};
  }
  switch (reason) {
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return {Kind::kUntrusted, {}, "shows no certificate"};
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_RECORD_TOO_SMALL:
    case SSL_R_UNEXPECTED_MESSAGE:
      return {
          Kind::kNotTls,
          {},
          is_server ? "speaks without TLS" : "answers, but not in TLS, which --tls-cert asks for"};
    default: return {Kind::kBroken, {}, "TLS: " + reason_of(error)};
  }
}

}  // namespace muster::transport
