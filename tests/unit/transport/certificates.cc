// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/transport/certificates.h"

#include <cstdio>
#include <memory>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <string>

#include <catch2/catch.hpp>

namespace muster::test {
namespace {

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

Key make_key() {
  return {EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256"), EVP_PKEY_free};
}

void extend(X509* certificate, X509* issuer, int what, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, what, value);
  REQUIRE(extension != nullptr);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

// `issuer` is nullptr: by itself.
Certificate make_certificate(const char* name, EVP_PKEY* key, X509* issuer, EVP_PKEY* issuer_key) {
  Certificate made(X509_new(), X509_free);
  X509_set_version(made.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(made.get()), issuer == nullptr ? 1 : 2);
  X509_gmtime_adj(X509_getm_notBefore(made.get()), -60);
  X509_gmtime_adj(X509_getm_notAfter(made.get()), 3600);
  X509_set_pubkey(made.get(), key);
  const std::string text = name;
  X509_NAME_add_entry_by_txt(X509_get_subject_name(made.get()), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(text.c_str()), -1, -1, 0);
  X509* const by = issuer == nullptr ? made.get() : issuer;
  X509_set_issuer_name(made.get(), X509_get_subject_name(by));
  extend(made.get(), by, issuer == nullptr ? NID_basic_constraints : NID_subject_alt_name,
         issuer == nullptr ? "critical,CA:TRUE" : "IP:127.0.0.1");
  REQUIRE(X509_sign(made.get(), issuer_key, EVP_sha256()) != 0);
  return made;
}

File open(const std::filesystem::path& path) {
  File file(std::fopen(path.c_str(), "w"), std::fclose);
  REQUIRE(file != nullptr);
  return file;
}

}  // namespace

transport::TlsFiles make_certificates(const std::filesystem::path& folder) {
  const Key ca_key = make_key();
  const Certificate ca = make_certificate("ca", ca_key.get(), nullptr, ca_key.get());
  const Key key = make_key();
  const Certificate own = make_certificate("own", key.get(), ca.get(), ca_key.get());
  REQUIRE(PEM_write_X509(open(folder / "ca.pem").get(), ca.get()) == 1);
  REQUIRE(PEM_write_X509(open(folder / "cert.pem").get(), own.get()) == 1);
  REQUIRE(PEM_write_PrivateKey(open(folder / "key.pem").get(), key.get(), nullptr, nullptr, 0,
                               nullptr, nullptr) == 1);
  return {{folder / "cert.pem", "cert"}, {folder / "key.pem", "key"}, {folder / "ca.pem", "ca"}};
}

}  // namespace muster::test
