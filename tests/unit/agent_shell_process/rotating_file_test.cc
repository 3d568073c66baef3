// SPDX-License-Identifier: Apache-2.0
#include "agent/shell/rotating_file.h"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.h"

namespace muster::agent {
namespace {

namespace fs = std::filesystem;

std::string content(const std::string& path) {
  const std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Fixture {
  void open(LogRotation rule) {
    UniqueFd fd(::open(path().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    REQUIRE(fd.valid());
    file.emplace(std::move(fd), path(), rule);
  }

  void write(std::string_view text) {
    std::string_view rest = text;
    REQUIRE(file->write(rest, written) == 0);
    CHECK(rest.empty());
    all += text;
  }

  void clear() {
    for (const auto& entry : fs::directory_iterator(folder.path()))
      fs::remove_all(entry.path());
    all.clear();
  }

  std::string path() const { return folder.path() + "/log"; }
  std::string read(int number) const { return content(path() + "." + std::to_string(number)); }

  // All files, oldest first.
  std::string joined() const {
    std::string text;
    for (int number = 100; number > 0; --number)
      text += read(number);
    return text + content(path());
  }

  testing::TempDir folder;
  std::optional<RotatingFile> file;
  std::atomic<std::uint64_t> written{0};
  std::string all;
};

TEST_CASE_METHOD(Fixture, "rotation: lines stay whole, in order, none twice, none lost") {
  for (const std::size_t step : {1U, 7U, 64U, 1000U, 5000U}) {
    INFO(step);
    clear();
    open({1000, 100});
    std::string text;
    for (int line = 0; line < 300; ++line) {
      text += std::to_string(line) + std::string(static_cast<std::size_t>(line * 7 % 90), '.');
      text += '\n';
    }
    for (std::size_t at = 0; at < text.size(); at += step)
      write(std::string_view(text).substr(at, step));
    CHECK(joined() == all);
    CHECK(written >= all.size());
    int files = 0;
    for (int number = 1; number <= 100 && fs::exists(path() + "." + std::to_string(number));
         ++number, ++files) {
      const std::string one = read(number);
      CHECK(one.ends_with('\n'));
      CHECK(one.size() < 1000 + 95);  // by the end of its last line
      CHECK(one.size() > 800);
    }
    CHECK(files > 5);
    CHECK(file->take_trouble() == 0);
  }
}

TEST_CASE_METHOD(Fixture, "rotation: a chunk of whole lines never makes a file too large") {
  open({1000, 100});
  std::string chunk;
  for (int line = 0; line < 2000; ++line)
    chunk += std::to_string(line) + "\n";
  write(chunk);
  CHECK(joined() == all);
  for (int number = 1; fs::exists(path() + "." + std::to_string(number)); ++number)
    CHECK(read(number).size() <= 1000);
}

TEST_CASE_METHOD(Fixture, "rotation: so many old files stay, and none where none is wanted") {
  const std::string line(99, 'x');
  open({1000, 2});
  for (int i = 0; i < 55; ++i)
    write(std::to_string(i % 10) + line.substr(1) + "\n");
  CHECK(fs::exists(path() + ".1"));
  CHECK(fs::exists(path() + ".2"));
  CHECK_FALSE(fs::exists(path() + ".3"));
  CHECK_FALSE(fs::exists(path() + ".next"));
  CHECK(joined() == all.substr(30 * 100));
  clear();
  open({1000, 0});
  for (int i = 0; i < 25; ++i)
    write(line + "\n");
  CHECK_FALSE(fs::exists(path() + ".1"));
  CHECK(content(path()).size() == 500);
}

TEST_CASE_METHOD(Fixture, "rotation: a line that no file can hold is cut, not endless") {
  open({1000, 100});
  write("short\n");
  for (int i = 0; i < 100; ++i)
    write(std::string(77, 'x'));
  write("\nlast\n");
  CHECK(joined() == all);
  for (int number = 1; fs::exists(path() + "." + std::to_string(number)); ++number)
    CHECK(read(number).size() <= 2000);
  CHECK(fs::exists(path() + ".3"));
}

TEST_CASE_METHOD(Fixture, "rotation: a file that was there is gone on with") {
  open({1000, 5});
  write(std::string(899, 'a') + "\n");
  file.reset();
  open({1000, 5});
  write(std::string(199, 'b') + "\n");
  write("c\n");
  CHECK(joined() == all);
  // Its last line might not have been whole: it is not cut off here.
  CHECK(read(1) == all.substr(0, 1100));
  CHECK(content(path()) == "c\n");
}

TEST_CASE_METHOD(Fixture, "rotation: where files cannot be renamed the log goes on growing") {
  open({1000, 1});
  fs::create_directories(path() + ".1/in/the/way");
  const std::string line(99, 'x');
  for (int i = 0; i < 15; ++i)
    write(line + "\n");
  CHECK(file->take_trouble() == EISDIR);
  CHECK(file->take_trouble() == 0);
  CHECK(content(path()) == all);
  CHECK_FALSE(fs::exists(path() + ".next"));
  for (int i = 0; i < 15; ++i)
    write(line + "\n");
  CHECK(file->take_trouble() == 0);  // told once
  CHECK(content(path()) == all);
  // Out of the way again: put away with the next attempt.
  fs::remove_all(path() + ".1");
  for (int i = 0; i < 5; ++i)
    write(line + "\n");
  CHECK(read(1).size() == 3000);
  CHECK(joined() == all);
}

TEST_CASE_METHOD(Fixture, "rotation: a file that somebody else put away is begun anew") {
  open({1000, 2});
  const std::string line(99, 'x');
  for (int i = 0; i < 5; ++i)
    write(line + "\n");
  fs::rename(path(), folder.path() + "/theirs");
  for (int i = 0; i < 10; ++i)
    write(line + "\n");
  CHECK(file->take_trouble() == 0);
  CHECK(content(folder.path() + "/theirs").size() == 1000);
  CHECK(content(path()).size() == 500);
}

}  // namespace
}  // namespace muster::agent
