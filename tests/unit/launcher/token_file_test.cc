// SPDX-License-Identifier: Apache-2.0
#include "launcher/commands/token_file.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "launcher/commands/credentials.h"

namespace muster::launcher {
namespace {

namespace fs = std::filesystem;

struct Fixture {
  Fixture() {
    std::string name = (fs::temp_directory_path() / "muster-token-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    folder = name;
    unsetenv("MUSTER_TOKEN_FILE");
  }
  ~Fixture() {
    unsetenv("MUSTER_TOKEN_FILE");
    fs::remove_all(folder);
  }
  Fixture(const Fixture&) = delete;
  Fixture& operator=(const Fixture&) = delete;

  std::string file(const std::string& text, const std::string& name = "token") const {
    std::ofstream(folder + "/" + name) << text;
    return folder + "/" + name;
  }
  std::string refusal(const std::string& text) const {
    const std::string path = file(text);
    const absl::Status status = read_token_file(path).status();
    CHECK(absl::IsInvalidArgument(status));
    REQUIRE(std::string(status.message()).starts_with(path + ": "));
    return std::string(status.message()).substr(path.size() + 2);
  }

  std::string folder;
};

}  // namespace

TEST_CASE_METHOD(Fixture, "a token is the one line of its file") {
  for (const char* text : {"s3cret+/=", "s3cret+/=\n", "s3cret+/=\r\n"})
    CHECK(*read_token_file(file(text)) == "s3cret+/=");
  const std::string longest(4096, 'x');
  CHECK(*read_token_file(file(longest + "\n")) == longest);
}

TEST_CASE_METHOD(Fixture, "what is no token is refused, with its file") {
  CHECK(refusal("") == "is empty; it must hold the token in one line");
  CHECK(refusal("\n") == "is empty; it must hold the token in one line");
  CHECK(refusal("one\ntwo\n") == "several lines; a token is one");
  CHECK(refusal(std::string(4097, 'x')) == "longer than a token may be (4096 bytes)");
  const std::string signs = "a token has letters, digits and signs of ASCII only, and no blanks";
  CHECK(refusal("two words") == signs);
  CHECK(refusal("pass\xC3\xA9") == signs);
  CHECK(refusal("nul" + std::string(1, '\0')) == signs);
  const absl::Status missing = read_token_file(folder + "/none").status();
  CHECK(absl::IsNotFound(missing));
  CHECK(missing.message() == folder + "/none: No such file or directory");
  CHECK(read_token_file(folder).status().message() == folder + ": not a regular file");
}

TEST_CASE_METHOD(Fixture, "the flag goes before the variable, and each names itself") {
  SmallLine line;
  const auto token_of = [&line] {
    const absl::StatusOr<transport::Credentials> found = credentials_of(line);
    return found.ok() ? found->token : std::string(found.status().message());
  };
  CHECK(token_of().empty());
  setenv("MUSTER_TOKEN_FILE", "", 1);
  CHECK(token_of().empty());
  setenv("MUSTER_TOKEN_FILE", file("of-variable", "variable").c_str(), 1);
  CHECK(token_of() == "of-variable");
  line.flags["token-file"] = file("of-flag", "flag");
  CHECK(token_of() == "of-flag");
  line.flags["token-file"] = "/none";
  CHECK(token_of() == "--token-file: /none: No such file or directory");
  line.flags.clear();
  setenv("MUSTER_TOKEN_FILE", "/none", 1);
  CHECK(token_of() == "MUSTER_TOKEN_FILE: /none: No such file or directory");
}

}  // namespace muster::launcher
