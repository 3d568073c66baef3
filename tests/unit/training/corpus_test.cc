// SPDX-License-Identifier: Apache-2.0
#include "worker_runtime/data/corpus.h"

#include <cstring>
#include <filesystem>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "tests/unit/training/scratch.h"

namespace muster::runtime {
namespace {

using test::Scratch;

std::string text_of(const Corpus& corpus) {
  return {corpus.bytes.begin(), corpus.bytes.end()};
}

TEST_CASE("a single file is the corpus") {
  const Scratch dir;
  const auto corpus = read_corpus(dir.write("a.txt", "hello"));
  REQUIRE(corpus.ok());
  CHECK(text_of(*corpus) == "hello");
  CHECK(corpus->files == 1);
}

TEST_CASE("a directory is read in bytewise order of the whole path") {
  const Scratch dir;
  // '.' sorts before '/': a walk directory by directory would read a/z first.
  dir.write("a/z", "3");
  dir.write("a.txt", "2");
  dir.write("B", "1");
  dir.write("a/deep/er", "");
  dir.write("\xc3\xa4", "4");
  const auto corpus = read_corpus(dir.path());
  REQUIRE(corpus.ok());
  CHECK(text_of(*corpus) == "1234");
  CHECK(corpus->files == 5);
}

TEST_CASE("doubles, binaries and things that are no files are left out and counted") {
  const Scratch dir;
  dir.write("text", "abc");
  dir.write("text.dat", std::string("a\0b", 3));
  std::filesystem::create_symlink("text", dir / "text.u8");
  std::filesystem::create_symlink("nowhere", dir / "broken");
  std::filesystem::create_directory_symlink(".", dir / "circle");
  REQUIRE(::mkfifo((dir / "pipe").c_str(), 0600) == 0);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(static_cast<char*>(address.sun_path), (dir / "sock").c_str(),
               sizeof(address.sun_path) - 1);
  const void* raw = &address;
  REQUIRE(::bind(fd, static_cast<const sockaddr*>(raw), sizeof(address)) == 0);
  const auto corpus = read_corpus(dir.path());
  ::close(fd);
  REQUIRE(corpus.ok());
  CHECK(text_of(*corpus) == "abc");
  CHECK(corpus->links == 1);
  CHECK(corpus->binary_files == 1);
  REQUIRE(corpus->others.size() == 4);
  const std::string said = describe(*corpus);
  for (const char* word : {"1 links", "1 files with NUL", "broken (a broken link)",
                           "sock (a socket)", "circle (a link to a directory)", "pipe (a FIFO)"}) {
    CHECK_THAT(said, Catch::Contains(word));
  }
}

TEST_CASE("a link to a file outside is read") {
  const Scratch outside;
  const Scratch dir;
  std::filesystem::create_symlink(outside.write("far", "far"), dir / "near");
  const auto corpus = read_corpus(dir.path());
  REQUIRE(corpus.ok());
  CHECK(text_of(*corpus) == "far");
  CHECK(corpus->links == 0);
}

TEST_CASE("what cannot be a corpus is refused by name") {
  const Scratch dir;
  const auto refused = [](const std::string& path, absl::StatusCode code, const std::string& word) {
    INFO(path);
    const auto corpus = read_corpus(path);
    REQUIRE_FALSE(corpus.ok());
    CHECK(corpus.status().code() == code);
    CHECK_THAT(std::string(corpus.status().message()), Catch::Contains(path));
    CHECK_THAT(std::string(corpus.status().message()), Catch::Contains(word));
  };
  refused(dir / "missing", absl::StatusCode::kNotFound, "No such file");
  refused(dir.write("empty", ""), absl::StatusCode::kInvalidArgument, "is empty");
  refused(dir.write("bin", std::string("ab\0", 3)), absl::StatusCode::kInvalidArgument,
          "NUL byte at offset 2");
  REQUIRE(::mkfifo((dir / "pipe").c_str(), 0600) == 0);
  refused(dir / "pipe", absl::StatusCode::kInvalidArgument, "is a FIFO");
  refused("/dev/zero", absl::StatusCode::kInvalidArgument, "character device");
  std::filesystem::create_directory(dir / "hollow");
  refused(dir / "hollow", absl::StatusCode::kInvalidArgument, "is empty: 0 files");
}

TEST_CASE("an unreadable file is an error, not a smaller corpus") {
  const Scratch dir;
  dir.write("open", "text");
  const std::string closed = dir.write("closed", "text");
  REQUIRE(::chmod(dir.path().c_str(), 0755) == 0);
  REQUIRE(::chmod(closed.c_str(), 0) == 0);
  constexpr uid_t kNobody = 65534;  // root reads everything
  const uid_t user = ::geteuid();
  if (user == 0) REQUIRE(::seteuid(kNobody) == 0);
  const auto corpus = read_corpus(dir.path());
  if (user == 0) REQUIRE(::seteuid(user) == 0);
  REQUIRE_FALSE(corpus.ok());
  CHECK(corpus.status().code() == absl::StatusCode::kPermissionDenied);
  CHECK_THAT(std::string(corpus.status().message()), Catch::Contains(closed));
}

TEST_CASE("Debian's fortunes is English text without its doubles") {
  const std::string path = "/usr/share/games/fortunes";
  REQUIRE(std::filesystem::exists(path));
  const auto corpus = read_corpus(path);
  REQUIRE(corpus.ok());
  CHECK(corpus->bytes.size() > 2'000'000);
  CHECK(corpus->binary_files == corpus->files);
  CHECK(corpus->links == corpus->files);
  CHECK(corpus->others.empty());
}

}  // namespace
}  // namespace muster::runtime
