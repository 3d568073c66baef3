// SPDX-License-Identifier: Apache-2.0
//
// Runs a fuzz target without a fuzzer: on the files it is given, on every file of the folders,
// and with --rounds N on N more inputs from --seed, some random, most of them a file that was
// changed. It stands in for libFuzzer's main where that is not linked, so one command line runs
// a single input in both. A folder without files is a mistake, not a success.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <unistd.h>
#include <vector>

#include "proto/base/rng.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using muster::Rng;

constexpr std::size_t kMostBytes = 4096;
constexpr unsigned kMostSeconds = 30;  // of one input, on a busy machine

std::string current;                     // the input that runs
std::string crash_file = "fuzz-crash";   // where it goes if it does not come back
volatile std::sig_atomic_t is_made = 0;  // not a file that is there already

void say(const char* text) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
}

// The input is kept, then the signal does what it always did.
void died(int signal) {
  say(signal == SIGALRM ? "fuzz: an input never ends: " : "fuzz: an input ends the process: ");
  if (is_made != 0) {
    const int file = open(crash_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    [[maybe_unused]] const ssize_t written = write(file, current.data(), current.size());
    close(file);
  }
  say(crash_file.c_str());
  say("\n");
  std::signal(signal, SIG_DFL);
  raise(signal);
}

void run(const std::string& bytes) {
  current = bytes;
  alarm(kMostSeconds);
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(current.data()), current.size());
  alarm(0);
}

std::string changed(std::string bytes, const std::vector<std::string>& corpus, Rng& rng) {
  for (std::uint64_t i = 1 + rng.below(6); i > 0; --i) {
    const std::size_t at = bytes.empty() ? 0 : rng.below(bytes.size());
    switch (rng.below(6)) {
      case 0: bytes.resize(at); break;
      case 1: bytes.insert(at, 1 + rng.below(8), static_cast<char>(rng.next())); break;
      case 2: bytes.erase(at, 1 + rng.below(8)); break;
      case 3: {
        const std::string& other = corpus[rng.below(corpus.size())];
        if (!other.empty()) bytes.insert(at, other, rng.below(other.size()), rng.below(64));
        break;
      }
      default:
        if (!bytes.empty()) bytes[at] = static_cast<char>(rng.next());
    }
  }
  bytes.resize(std::min(bytes.size(), kMostBytes));
  return bytes;
}

std::string noise(Rng& rng) {
  std::string bytes(rng.below(rng.below(kMostBytes) + 1), '\0');
  for (char& byte : bytes)
    byte = static_cast<char>(rng.next());
  return bytes;
}

// The files behind `path`, in the order of their names. Leaves the program where there is none.
std::vector<std::filesystem::path> files_of(const std::string& path) {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  std::error_code error;
  if (fs::is_regular_file(path, error)) return {path};
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    if (at->is_regular_file(error)) files.push_back(at->path());
  }
  if (error || files.empty()) {
    const std::string why = error ? error.message() : "there is no file in it";
    std::fprintf(stderr, "fuzz: %s: %s\n", path.c_str(), why.c_str());
    std::exit(2);
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.is_open() || file.bad()) {
    std::fprintf(stderr, "fuzz: %s cannot be read\n", path.c_str());
    std::exit(2);
  }
  return bytes;
}

}  // namespace

int main(int count, char** arguments) {
  std::uint64_t rounds = 0;
  std::uint64_t seed = 1;
  std::vector<std::string> paths;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    const bool has_value = i + 1 < count;
    if (argument == "--rounds" && has_value) {
      rounds = std::strtoull(arguments[++i], nullptr, 10);
    } else if (argument == "--seed" && has_value) {
      seed = std::strtoull(arguments[++i], nullptr, 10);
    } else {
      paths.push_back(argument);
    }
  }
  if (paths.empty() && rounds == 0) {
    std::fprintf(stderr, "usage: %s [FILE|FOLDER]... [--rounds N] [--seed S]\n", arguments[0]);
    return 2;
  }
  const std::string name = std::filesystem::path(arguments[0]).filename();
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGALRM})
    std::signal(signal, died);
  std::vector<std::string> corpus;
  for (const std::string& path : paths) {
    for (const std::filesystem::path& file : files_of(path)) {
      crash_file = file;
      corpus.push_back(content_of(file));
      run(corpus.back());
    }
  }
  if (corpus.empty()) corpus.emplace_back();
  crash_file = std::filesystem::absolute(name + "-crash");
  is_made = 1;
  Rng rng(seed);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    run(rng.below(5) == 0 ? noise(rng) : changed(corpus[rng.below(corpus.size())], corpus, rng));
  }
  std::printf("%s: %zu files, %llu made inputs, nothing broke\n", name.c_str(), corpus.size(),
              static_cast<unsigned long long>(rounds));
  return 0;
}
